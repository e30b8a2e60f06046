// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kokkos_compat.hpp"
#include "core/ops/elementwise.hpp"
#include "core/stopwatch.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// Best of a few rounds. Calls that are short are enqueued, as in a step, so that a GPU does not wait for the host.
template <class F>
double best_seconds(const ExecSpace& exec, const F& run) {
  const auto seconds_of = [&](int calls) {
    const Stopwatch stopwatch;
    for (int call = 0; call < calls; ++call)
      run();
    compat::fence(exec, "espalier::bench_ops: the calls are over when the clock stops");
    return stopwatch.seconds() / calls;
  };
  seconds_of(1);  // warms up, and chooses kernels
  const double once = seconds_of(1);
  const int calls = once > 5e-3 ? 1 : 8;
  double best = once;
  for (int round = 0; round < 3; ++round)
    best = std::min(best, seconds_of(calls));
  return best;
}

/// Numbers of both signs that look random: a GPU multiplies equal ones faster.
template <class S, int Rank, class... Extents>
Tensor<S, Rank> filled(Extents... extents) {
  Tensor<S, Rank> tensor("espalier::workspace::bench", static_cast<std::size_t>(extents)...);
  S* const data = tensor.data();
  Kokkos::parallel_for(
      "espalier::app::fill", RangePolicy(ExecSpace(), 0, (extents * ...)), KOKKOS_LAMBDA(const Index i) {
        const auto bits = static_cast<std::uint32_t>(i) * 2654435761U >> 8;  // of 24
        data[i] = static_cast<S>(static_cast<State<S>>(bits) * State<S>(0x1p-24) - State<S>(0.5));
      });
  return tensor;
}

inline double triad_seconds(const ExecSpace& exec) {
  const auto a = filled<float, 2>(triad_rows, triad_width), b = filled<float, 2>(triad_rows, triad_width),
             c = filled<float, 2>(triad_rows, triad_width);
  return best_seconds(exec, [&] { triad(exec, a, b, c, 0.5F); });
}

}  // namespace espalier
