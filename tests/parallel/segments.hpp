// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/parameter.hpp"
#include "parallel/collectives/communicator.hpp"
#include "tests/support/world.hpp"

namespace espalier::test {

inline constexpr GroupKey over_dp{};
inline constexpr GroupKey over_tp_and_dp{.axes = AxisSet{Axis::tp} | token_axes};
inline constexpr GroupKey over_tied{.tied = true};

/// Segments of these sizes, one after another.
inline std::vector<Segment> segments_of(const std::vector<Index>& sizes) {
  std::vector<Segment> segments;
  Index offset = 0;
  for (const Index size : sizes) {
    segments.push_back({.chunk = 0,
                        .block = static_cast<int>(segments.size()),
                        .group = over_dp,
                        .weight_decay = true,
                        .offset = offset,
                        .size = size});
    offset += size;
  }
  return segments;
}

inline Index total(const std::vector<Segment>& segments) { return segments.back().offset + segments.back().size; }

/// The parameters of a small stage: matrices with rows of odd lengths, vectors, all three reduction groups, padding
/// inside segments and gaps between them. Laid out, not allocated.
template <class T>
ParameterStore<T> odd_parameters(bool tied = true) {
  ParameterStore<T> parameters;
  for (int block = 0; block < 3; ++block) {
    const std::string name = "h." + std::to_string(block);
    parameters.declare({.name = name + ".up", .shape = {37, 19}, .block = block, .init_std = 1});
    parameters.declare({.name = name + ".down", .shape = {5, 300}, .block = block, .init_std = 1});
    parameters.declare({.name = name + ".bias", .shape = {53}, .block = block, .weight_decay = false, .init_std = 1});
    parameters.declare({.name = name + ".norm",
                        .shape = {131},
                        .block = block,
                        .partial = {Axis::tp},
                        .weight_decay = false,
                        .init_std = 1});
  }
  if (tied)
    parameters.declare({.name = "tokens", .shape = {97, 23}, .block = 0, .tied = true, .init_std = 1});
  parameters.lay_out();
  return parameters;
}

/// What a GradientReducer has sent since begin_step().
template <class Reducer>
std::uint64_t bytes_sent(const Reducer& reducer) {
  std::uint64_t bytes = 0;
  for (const auto& [group, traffic] : reducer.traffic())
    bytes += traffic.bytes;
  return bytes;
}

/// Undoes what a test sets for the whole job.
struct RestoreSettings {
  CommunicationContext before = world().context();
  ~RestoreSettings() { *world().state()->context = before; }
};

}  // namespace espalier::test
