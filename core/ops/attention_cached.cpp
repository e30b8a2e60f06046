// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cached.hpp"

#include <cmath>

#include "core/kokkos_compat.hpp"
#include "core/ops/attention_heads.hpp"
#include "core/vector_math.hpp"

namespace espalier {

template <class T>
void store_keys_and_values(const ExecSpace& exec, Tensor<T, 2> cache, Tensor<T, 2> qkv, Index first,
                           const AttentionShape& shape) {
  const Index queries = shape.num_heads * shape.head_size;
  const Index width = cache.extent(1);
  for_rows(
      exec, "espalier::core::store_keys_and_values", qkv.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        copy_row<T>(thread, &cache(first + n, 0), &qkv(n, queries), width);
      });
}

template <class T>
void attention_cached(const ExecSpace& exec, Tensor<T, 2> out, Tensor<T, 2> qkv, Tensor<T, 2> cache, Index first,
                      const AttentionShape& shape) {
  using S = State<T>;
  using Scratch = Kokkos::View<S*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  constexpr Index tile = 64;  // keys at a time, with a running softmax as in core/ops/attention.cpp
  const Index rows = qkv.extent(0), heads = shape.num_heads, width = shape.head_size, group = shape.group();
  const Index values = shape.kv_heads() * width;  // where V begins in a row of the cache
  const S scale = static_cast<S>(1 / std::sqrt(static_cast<double>(width)));
  TeamPolicy policy = row_policy(exec, rows * heads);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Scratch::shmem_size(static_cast<std::size_t>(width)) +
                                                              Scratch::shmem_size(tile))));
  Kokkos::parallel_for(
      "espalier::core::attention_cached", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank() / heads, head = team.league_rank() % heads;
        const T* const q = &qkv(n, head * width);
        const Index column = head / group * width;          // of K of its group
        const Scratch sum(team.team_scratch(0), width);     // (HS)
        const Scratch weights(team.team_scratch(0), tile);  // (tile)
        row_for(team, width, [&](const Index c) { sum(c) = S(0); });
        const Index last = first + n;
        S largest = S(0), total = S(0);
        const Index begin = impl::first_key(shape, last);
        for (Index k0 = begin; k0 <= last; k0 += tile) {
          const Index keys = smaller(tile, last + 1 - k0);
          team.team_barrier();  // the weights of the last tile are no longer read
          row_for(team, keys, [&](const Index j) {
            const T* const k = &cache(k0 + j, column);
            S score = S(0);
            for (Index c = 0; c < width; ++c)
              score += static_cast<S>(q[c]) * static_cast<S>(k[c]);
            weights(j) = scale * score;
          });
          team.team_barrier();
          const S of_tile = row_max<S>(team, keys, [&](const Index j) { return weights(j); });
          const S now = k0 == begin || of_tile > largest ? of_tile : largest;
          const S shrink = k0 == begin ? S(0) : vector_exp(largest - now);
          team.team_barrier();  // all have read the scores
          row_for(team, keys, [&](const Index j) { weights(j) = vector_exp(weights(j) - now); });
          team.team_barrier();
          total = total * shrink + row_sum<S>(team, keys, [&](const Index j) { return weights(j); });
          largest = now;
          row_for(team, width, [&](const Index c) {
            S added = S(0);
            for (Index j = 0; j < keys; ++j)
              added += weights(j) * static_cast<S>(cache(k0 + j, values + column + c));
            sum(c) = sum(c) * shrink + added;
          });
        }
        team.team_barrier();
        row_for(team, width, [&](const Index c) { out(n, head * width + c) = static_cast<T>(sum(c) / total); });
      });
}

#define ESPALIER_INSTANTIATE(T)                                                                                       \
  template void store_keys_and_values<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Index, const AttentionShape&); \
  template void attention_cached<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Index,                \
                                    const AttentionShape&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
