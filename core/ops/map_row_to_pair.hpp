// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/vector_math.hpp"

namespace espalier {

/// What a function for map_row_to_pair() returns: numbers of the state type.
template <class S>
struct RowPair {
  S first, second;
};

/// {first[i], second[i]} = f(in[i]...) for i in [0, n), in any order; each of them may be one of in.
template <class Workers, class Out, class F, class... In>
KOKKOS_INLINE_FUNCTION void map_row_to_pair(const Workers& workers, Index n, Out* first, Out* second, const F& f,
                                            const In*... in) {
  using S = State<Out>;
  const auto put = [&](const Index i) {
    const RowPair<S> result = f(in[i]...);
    first[i] = static_cast<Out>(result.first);
    second[i] = static_cast<Out>(result.second);
  };
  if constexpr (exec_is_host && !has_master_weights<Out>) {
    row_for(workers, n, put);
  } else if constexpr (exec_is_host) {
    // Compilers vectorise loops of 16-bit numbers where these have one result each.
    constexpr Index block = 128;
    S firsts[block], seconds[block];
    for (Index start = 0; start < n; start += block) {
      const Index count = smaller(block, n - start);
      row_for(workers, count, [&](const Index i) {
        const RowPair<S> result = f(in[start + i]...);
        firsts[i] = result.first;
        seconds[i] = result.second;
      });
      row_for(workers, count, [&](const Index i) { first[start + i] = static_cast<Out>(firsts[i]); });
      row_for(workers, count, [&](const Index i) { second[start + i] = static_cast<Out>(seconds[i]); });
    }
  } else {
    const Index packs = impl::packs_of(n, first, second, in...);
    const auto of_pack = [&](const Index p, const Pack<In>... operands) {
      Pack<Out> firsts, seconds;
      for (int i = 0; i < Pack<Out>::size; ++i) {
        const RowPair<S> result = f(operands.values[i]...);
        firsts.values[i] = static_cast<Out>(result.first);
        seconds.values[i] = static_cast<Out>(result.second);
      }
      impl::put_pack(first, p, firsts);
      impl::put_pack(second, p, seconds);
    };
    row_for(workers, packs, [&](const Index p) { of_pack(p, impl::pack_at(in, p)...); });
    const Index done = packs * Pack<Out>::size;
    row_for(workers, n - done, [&](const Index i) { put(done + i); });
  }
}

}  // namespace espalier
