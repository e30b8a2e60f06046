// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_names.hpp"

#include <fmt/format.h>

#include <charconv>

#include "io/rank_file_name.hpp"

namespace espalier {
namespace {

constexpr std::string_view shard_ending = ".h5";
constexpr std::string_view step_prefix = "step-";

}  // namespace

std::string shard_name(Index rank) { return rank_file_name(rank, shard_ending); }

bool is_shard_name(std::string_view name) { return rank_in(name, shard_ending).has_value(); }

std::string step_name(Index step) { return fmt::format("{}{:08}", step_prefix, step); }

std::optional<Index> step_in(std::string_view name) {
  Index step = -1;
  if (name.starts_with(step_prefix))
    std::from_chars(name.data() + step_prefix.size(), name.data() + name.size(), step);
  return step >= 0 && name == step_name(step) ? std::optional(step) : std::nullopt;
}

std::string tensor_name(std::string_view group, std::string_view parameter) {
  return fmt::format("{}/{}", group, parameter);
}

}  // namespace espalier
