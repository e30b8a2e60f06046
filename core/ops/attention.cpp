// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention.hpp"

#include <cmath>

#include "core/ops/tile_matmul.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

// A tile of scores stays in the second-level cache of a core, or in the scratch memory of a GPU team.
constexpr Index query_tile = exec_is_host ? 64 : 32;
constexpr Index key_tile = exec_is_host ? 256 : 32;
constexpr int scratch_level = exec_is_host ? 1 : 0;

template <class S>
using ScratchVector = Kokkos::View<S*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;

// Where one head of one sequence lies.
template <class T>
struct Head {
  T* first;
  Index stride;
  KOKKOS_INLINE_FUNCTION T* row(Index t) const { return first + t * stride; }
};

// Part 0, 1, 2 of a (B*T, 3*Cl) array = Q, K, V; part 0 of a (B*T, Cl) array = the head itself.
template <class T>
KOKKOS_INLINE_FUNCTION Head<T> head_of(const Tensor<T, 2>& array, const AttentionShape& shape, Index team, Index part) {
  const Index b = team / shape.num_heads;
  const Index h = team % shape.num_heads;
  const Index stride = array.extent(1);
  return {array.data() + b * shape.sequence_length * stride + (part * shape.num_heads + h) * shape.head_size, stride};
}

template <class S>
TeamPolicy head_policy(const ExecSpace& exec, const AttentionShape& shape, Index score_tiles) {
  TeamPolicy policy = row_policy(exec, shape.batch * shape.num_heads);
  const auto bytes = ScratchVector<S>::shmem_size(static_cast<std::size_t>(score_tiles * query_tile * key_tile)) +
                     2 * ScratchVector<S>::shmem_size(static_cast<std::size_t>(query_tile));
  policy.set_scratch_size(scratch_level, Kokkos::PerTeam(static_cast<int>(bytes)));
  return policy;
}

}  // namespace

template <class T>
void attention_forward(const ExecSpace& exec, Tensor<T, 2> out, Tensor<State<T>, 1> log_sum_exp, Tensor<T, 2> qkv,
                       const AttentionShape& shape) {
  using S = State<T>;
  const S scale = static_cast<S>(1 / std::sqrt(static_cast<double>(shape.head_size)));
  Kokkos::parallel_for(
      "espalier::core::attention_forward", head_policy<S>(exec, shape, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index length = shape.sequence_length;
        const Index width = shape.head_size;
        const Head<T> q = head_of<T>(qkv, shape, team.league_rank(), 0);
        const Head<T> k = head_of<T>(qkv, shape, team.league_rank(), 1);
        const Head<T> v = head_of<T>(qkv, shape, team.league_rank(), 2);
        const Head<T> o = head_of<T>(out, shape, team.league_rank(), 0);
        const ScratchVector<S> scores(team.team_scratch(int{scratch_level}), query_tile * key_tile);
        const ScratchVector<S> largest(team.team_scratch(int{scratch_level}), query_tile);
        const ScratchVector<S> denominator(team.team_scratch(int{scratch_level}), query_tile);

        for (Index q0 = 0; q0 < length; q0 += query_tile) {
          const Index queries = smaller(query_tile, length - q0);
          for (Index k0 = 0; k0 < q0 + queries; k0 += key_tile) {
            const Index keys = smaller(key_tile, q0 + queries - k0);
            team.team_barrier();  // the tile of the last round is no longer read
            tile_matmul<T>(team, scores.data(), keys, Transpose::no, q.row(q0), q.stride, Transpose::yes, k.row(k0),
                           k.stride, queries, keys, width, scale, S(0));
            team.team_barrier();
            for (Index i = 0; i < queries; ++i) {
              S* const row = scores.data() + i * keys;
              const Index visible = smaller(keys, q0 + i + 1 - k0);  // keys not after the query; 0 or less: none here
              if (visible <= 0) {
                row_for(team, keys, [&](const Index j) { row[j] = S(0); });
                continue;
              }
              const S tile_largest = row_max<S>(team, visible, [=](const Index j) { return row[j]; });
              const S old_largest = k0 == 0 ? tile_largest : largest(i);
              const S new_largest = tile_largest > old_largest ? tile_largest : old_largest;
              row_for(team, keys,
                      [&](const Index j) { row[j] = j < visible ? vector_exp(row[j] - new_largest) : S(0); });
              team.team_barrier();
              const S sum = row_sum<S>(team, visible, [=](const Index j) { return row[j]; });
              const S shrink = k0 == 0 ? S(0) : vector_exp(old_largest - new_largest);
              if (k0 > 0)
                row_for(team, width, [&](const Index c) { o.row(q0 + i)[c] *= shrink; });
              const S old_denominator = k0 == 0 ? S(0) : denominator(i);
              team.team_barrier();  // every member has read the old maximum and denominator
              Kokkos::single(Kokkos::PerTeam(team), [&]() {
                largest(i) = new_largest;
                denominator(i) = old_denominator * shrink + sum;
              });
            }
            team.team_barrier();
            tile_matmul<T>(team, o.row(q0), o.stride, Transpose::no, scores.data(), keys, Transpose::no, v.row(k0),
                           v.stride, queries, width, keys, S(1), k0 == 0 ? S(0) : S(1));
          }
          team.team_barrier();
          for (Index i = 0; i < queries; ++i) {
            const S inverse = S(1) / denominator(i);
            row_for(team, width, [&](const Index c) { o.row(q0 + i)[c] *= inverse; });
            Kokkos::single(Kokkos::PerTeam(team), [&]() {
              log_sum_exp(team.league_rank() * length + q0 + i) = largest(i) + compat::log(denominator(i));
            });
          }
        }
      });
}

template <class T>
void attention_backward(const ExecSpace& exec, Tensor<T, 2> dqkv, Tensor<T, 2> dout, Tensor<T, 2> out,
                        Tensor<State<T>, 1> log_sum_exp, Tensor<T, 2> qkv, const AttentionShape& shape) {
  using S = State<T>;
  const S scale = static_cast<S>(1 / std::sqrt(static_cast<double>(shape.head_size)));
  // With P the probabilities and dP = dO V^T:  dV = P^T dO,  dS = P * (dP - rowsum(dO * O)),  dQ = scale dS K,
  // dK = scale dS^T Q. P is made again from the saved log of its denominator.
  Kokkos::parallel_for(
      "espalier::core::attention_backward", head_policy<S>(exec, shape, 2), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index length = shape.sequence_length;
        const Index width = shape.head_size;
        const Head<T> q = head_of<T>(qkv, shape, team.league_rank(), 0);
        const Head<T> k = head_of<T>(qkv, shape, team.league_rank(), 1);
        const Head<T> v = head_of<T>(qkv, shape, team.league_rank(), 2);
        const Head<T> o = head_of<T>(out, shape, team.league_rank(), 0);
        const Head<T> dq = head_of<T>(dqkv, shape, team.league_rank(), 0);
        const Head<T> dk = head_of<T>(dqkv, shape, team.league_rank(), 1);
        const Head<T> dv = head_of<T>(dqkv, shape, team.league_rank(), 2);
        const Head<T> d_o = head_of<T>(dout, shape, team.league_rank(), 0);
        const ScratchVector<S> probabilities(team.team_scratch(int{scratch_level}), query_tile * key_tile);
        const ScratchVector<S> dscores(team.team_scratch(int{scratch_level}), query_tile * key_tile);

        for (Index k0 = 0; k0 < length; k0 += key_tile) {
          const Index all_keys = smaller(key_tile, length - k0);
          for (Index q0 = k0 / query_tile * query_tile; q0 < length; q0 += query_tile) {
            const Index queries = smaller(query_tile, length - q0);
            const Index keys = smaller(all_keys, q0 + queries - k0);  // none of the later ones is visible
            team.team_barrier();                                      // the tiles of the last round are no longer read
            tile_matmul<T>(team, probabilities.data(), keys, Transpose::no, q.row(q0), q.stride, Transpose::yes,
                           k.row(k0), k.stride, queries, keys, width, scale, S(0));
            tile_matmul<T>(team, dscores.data(), keys, Transpose::no, d_o.row(q0), d_o.stride, Transpose::yes,
                           v.row(k0), v.stride, queries, keys, width, S(1), S(0));
            team.team_barrier();
            for (Index i = 0; i < queries; ++i) {
              S* const p = probabilities.data() + i * keys;
              S* const ds = dscores.data() + i * keys;
              const Index visible = smaller(keys, q0 + i + 1 - k0);
              const S log_sum = log_sum_exp(team.league_rank() * length + q0 + i);
              const S projection = row_sum<S>(team, width, [&](const Index c) {
                return static_cast<S>(d_o.row(q0 + i)[c]) * static_cast<S>(o.row(q0 + i)[c]);
              });
              row_for(team, keys, [&](const Index j) {
                const S probability = j < visible ? vector_exp(p[j] - log_sum) : S(0);
                p[j] = probability;
                ds[j] = probability * (ds[j] - projection);
              });
            }
            team.team_barrier();
            // Each part of the gradient is set by the first tile that reaches it and added to by the others: a query
            // tile is first met at k0 = 0, a key tile at its own diagonal, whose query tile sees all rows that come
            // first.
            const S add_queries = k0 == 0 ? S(0) : S(1);
            const bool diagonal = q0 == k0 / query_tile * query_tile;
            if (diagonal) {
              for (Index j = 0; j < all_keys; ++j)
                row_for(team, width, [&](const Index c) { dk.row(k0 + j)[c] = dv.row(k0 + j)[c] = T(0); });
              team.team_barrier();
            }
            tile_matmul<T>(team, dv.row(k0), dv.stride, Transpose::yes, probabilities.data(), keys, Transpose::no,
                           d_o.row(q0), d_o.stride, keys, width, queries, S(1), S(1));
            tile_matmul<T>(team, dk.row(k0), dk.stride, Transpose::yes, dscores.data(), keys, Transpose::no, q.row(q0),
                           q.stride, keys, width, queries, scale, S(1));
            tile_matmul<T>(team, dq.row(q0), dq.stride, Transpose::no, dscores.data(), keys, Transpose::no, k.row(k0),
                           k.stride, queries, width, keys, scale, add_queries);
          }
        }
      });
}

#define ESPALIER_INSTANTIATE(T)                                                                                        \
  template void attention_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<State<T>, 1>, Tensor<T, 2>,                \
                                     const AttentionShape&);                                                           \
  template void attention_backward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<State<T>, 1>, \
                                      Tensor<T, 2>, const AttentionShape&);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
