// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cached.hpp"

#include "core/kokkos_compat.hpp"
#include "core/ops/attention_heads.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

// Of one worker. On hosts in lanes, as the compiler may not reorder a sum.
template <class S, class T>
KOKKOS_INLINE_FUNCTION S score_of(const T* a, const T* b, Index n) {
  const auto term = [&](const Index c) { return static_cast<S>(a[c]) * static_cast<S>(b[c]); };
  if constexpr (exec_is_host)
    return impl::reduce_in_lanes(n, S(0), term, [](const S x, const S y) { return x + y; });
  S sum = S(0);
  for (Index c = 0; c < n; ++c)
    sum += term(c);
  return sum;
}

template <class T>
void store_keys_and_values(const ExecSpace& exec, const Tensor<T, 3>& cache, const Tensor<T, 2>& qkv,
                           const CachedRows& rows, const AttentionShape& shape) {
  const Index queries = shape.num_heads * shape.head_size;
  const Index width = cache.extent(2);
  for_rows(
      exec, "espalier::core::store_keys_and_values", qkv.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        copy_row<T>(thread, &cache(rows.sequences(n), rows.positions(n), 0), &qkv(n, queries), width);
      });
}

}  // namespace

template <class T>
void attention_cached(const ExecSpace& exec, Tensor<T, 2> out, Tensor<T, 2> qkv, Tensor<T, 3> cache,
                      const CachedRows& rows, const AttentionShape& shape) {
  store_keys_and_values<T>(exec, cache, qkv, rows, shape);
  using S = State<T>;
  using Scratch = Kokkos::View<S*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  constexpr Index tile = 64;  // keys at a time, with a running softmax as in core/ops/attention.cpp
  const Index heads = shape.num_heads, width = shape.head_size, group = shape.group();
  const Index values = shape.num_kv_heads * width;  // where V begins in a row of the cache
  const Index stride = cache.extent(2);
  const S scale = static_cast<S>(shape.scale());
  TeamPolicy policy = row_policy(exec, qkv.extent(0) * heads);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Scratch::shmem_size(static_cast<std::size_t>(width)) +
                                                              Scratch::shmem_size(tile))));
  Kokkos::parallel_for(
      "espalier::core::attention_cached", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank() / heads, head = team.league_rank() % heads;
        const T* const q = &qkv(n, head * width);
        const T* const keys_of = &cache(rows.sequences(n), 0, head / group * width);  // K of its group, row by row
        const Scratch sum(team.team_scratch(0), width);                               // (HS)
        const Scratch weights(team.team_scratch(0), tile);                            // (tile)
        row_for(team, width, [&](const Index c) { sum(c) = S(0); });
        const Index last = rows.positions(n);
        S largest = S(0), total = S(0);
        const Index begin = impl::first_key(shape, last);
        for (Index k0 = begin; k0 <= last; k0 += tile) {
          const Index keys = smaller(tile, last + 1 - k0);
          team.team_barrier();  // the weights of the last tile are no longer read
          row_for(team, keys,
                  [&](const Index j) { weights(j) = scale * score_of<S>(q, keys_of + (k0 + j) * stride, width); });
          team.team_barrier();
          const S of_tile = row_max<S>(team, keys, [&](const Index j) { return weights(j); });
          const S now = k0 == begin || of_tile > largest ? of_tile : largest;
          const S shrink = k0 == begin ? S(0) : vector_exp(largest - now);
          team.team_barrier();  // all have read the scores
          row_for(team, keys, [&](const Index j) { weights(j) = vector_exp(weights(j) - now); });
          team.team_barrier();
          total = total * shrink + row_sum<S>(team, keys, [&](const Index j) { return weights(j); });
          largest = now;
          const T* const v = keys_of + values + k0 * stride;
          if constexpr (exec_is_host) {  // along rows, so that it vectorises
            row_for(team, width, [&](const Index c) { sum(c) *= shrink; });
            for (Index j = 0; j < keys; ++j)
              row_for(team, width, [&](const Index c) { sum(c) += weights(j) * static_cast<S>(v[j * stride + c]); });
          } else {
            row_for(team, width, [&](const Index c) {
              S added = S(0);
              for (Index j = 0; j < keys; ++j)
                added += weights(j) * static_cast<S>(v[j * stride + c]);
              sum(c) = sum(c) * shrink + added;
            });
          }
        }
        team.team_barrier();
        row_for(team, width, [&](const Index c) { out(n, head * width + c) = static_cast<T>(sum(c) / total); });
      });
}

#define ESPALIER_INSTANTIATE(T)                                                                                    \
  template void attention_cached<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 3>, const CachedRows&, \
                                    const AttentionShape&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
