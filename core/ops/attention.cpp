// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>

#include "core/error.hpp"
#include "core/ops/attention_cudnn.hpp"
#include "core/ops/attention_heads.hpp"
#include "core/ops/attention_library.hpp"
#include "core/ops/attention_rows.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/ops/tile_matmul.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

using impl::Documents;
using impl::end_of_queries;
using impl::first_key;
using impl::head_of;
using impl::HeadPart;
using impl::HeadRows;

// The kernels of hosts. Tiles of Q, K, V, of their gradients and of probabilities are multiplied as Operand: T where
// the CPU has units for it, else the state type.

// A tile of scores, of TQ queries and TK keys, stays in the second-level cache of a core.
template <class Operand>
constexpr Index query_tile = sizeof(Operand) == 2 ? 128 : 64;
[[maybe_unused]] constexpr Index key_tile = 256;
[[maybe_unused]] constexpr int scratch_level = 1;

template <class S>
using ScratchVector = Kokkos::View<S*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;

// A team for each of `heads` heads of a sequence, with elements of scratch vectors of the state type and of operands.
template <class S, class Operand>
TeamPolicy head_policy(const ExecSpace& exec, const AttentionShape& shape, Index heads,
                       std::initializer_list<Index> tiles, std::initializer_list<Index> operands) {
  TeamPolicy policy = row_policy(exec, shape.batch * heads);
  std::size_t bytes = 0;
  for (const Index size : tiles)
    bytes += ScratchVector<S>::shmem_size(static_cast<std::size_t>(size));
  for (const Index size : operands)
    bytes += ScratchVector<Operand>::shmem_size(static_cast<std::size_t>(size));
  if (bytes > std::numeric_limits<int>::max())  // Kokkos counts scratch in int
    throw Error(ExitCode::usage,
                {.what = "a head of attention needs more scratch memory than a team can have",
                 .got = fmt::format("{} positions of {} channels a head", shape.sequence_length, shape.head_size),
                 .wanted = "fewer than 2^29 numbers",
                 .todo = "raise model.num_heads, or shorten batch.sequence_length"});
  policy.set_scratch_size(scratch_level, Kokkos::PerTeam(static_cast<int>(bytes)));
  return policy;
}

// Whether tiles of a head are copied: to widen them, or since 16-bit matmuls want them without gaps.
template <class T>
constexpr bool copies_operands = has_master_weights<T>;

// Rows [t, t + rows) of a head as operands: where they lie, or a copy. The caller puts barriers around it.
template <class T, class Operand>
KOKKOS_INLINE_FUNCTION HeadRows<const Operand> operand_rows(const TeamMember& team, const HeadRows<T>& head, Index t,
                                                            Index rows, Index width,
                                                            const ScratchVector<Operand>& copy) {
  if constexpr (!copies_operands<T>) {
    return {head.row(t), head.stride};
  } else {
    for (Index i = 0; i < rows; ++i) {
      const T* const in = head.row(t + i);
      Operand* const out = copy.data() + i * width;
      if constexpr (std::is_same_v<Operand, T>)
        copy_row<Operand>(team, out, in, width);
      else
        row_for(team, width, [&](const Index c) { out[c] = static_cast<Operand>(in[c]); });
    }
    return {copy.data(), width};
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION constexpr Index copied(Index size) {  // of a tile that operand_rows() makes
  return copies_operands<T> ? size : 0;
}

// Where a tile of S is multiplied from as Operand: where it lies, or memory for a copy.
template <class Operand, class S>
KOKKOS_INLINE_FUNCTION Operand* weights_of(const ScratchVector<S>& tile, const ScratchVector<Operand>& copy) {
  if constexpr (std::is_same_v<Operand, S>)
    return tile.data();
  else
    return copy.data();
}

template <class T, class Operand>
KOKKOS_INLINE_FUNCTION constexpr Index rounded(Index size) {  // of the copy for weights_of()
  return std::is_same_v<Operand, State<T>> ? 0 : size;
}

template <class T, class Operand>
void forward_in(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp,
                const Tensor<T, 2>& qkv, const AttentionShape& shape, const AttentionDropout& dropout,
                const Documents& documents) {
  using S = State<T>;
  constexpr Index tile = query_tile<Operand>;
  const S scale = static_cast<S>(shape.scale());
  const Index score_size = tile * key_tile;
  const Index query_size = tile * shape.head_size;
  const Index key_size = key_tile * shape.head_size;
  const TeamPolicy policy = head_policy<S, Operand>(
      exec, shape, shape.num_heads, {score_size, tile, tile, query_size},
      {rounded<T, Operand>(score_size), copied<T>(query_size), copied<T>(key_size), copied<T>(key_size)});
  Kokkos::parallel_for(
      "espalier::core::attention_forward", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index length = shape.sequence_length;
        const Index width = shape.head_size;
        const Index head = team.league_rank();
        const HeadRows<T> q = head_of<T>(qkv, shape, head);
        const HeadRows<T> k = head_of<T>(qkv, shape, head, HeadPart::key);
        const HeadRows<T> v = head_of<T>(qkv, shape, head, HeadPart::value);
        const HeadRows<T> o = head_of<T>(out, shape, head);
        const ScratchVector<S> scores(team.team_scratch(int{scratch_level}), score_size);        // (TQ, TK)
        const ScratchVector<S> largest(team.team_scratch(int{scratch_level}), Index{tile});      // (TQ)
        const ScratchVector<S> denominator(team.team_scratch(int{scratch_level}), Index{tile});  // (TQ)
        const ScratchVector<S> sum(team.team_scratch(int{scratch_level}), query_size);           // (TQ, HS), of P V
        const ScratchVector<Operand> rounded_scores(team.team_scratch(int{scratch_level}),
                                                    rounded<T, Operand>(score_size));                       // (TQ, TK)
        const ScratchVector<Operand> q_copy(team.team_scratch(int{scratch_level}), copied<T>(query_size));  // (TQ, HS)
        const ScratchVector<Operand> k_copy(team.team_scratch(int{scratch_level}), copied<T>(key_size));    // (TK, HS)
        const ScratchVector<Operand> v_copy(team.team_scratch(int{scratch_level}), copied<T>(key_size));    // (TK, HS)
        Operand* const probabilities = weights_of<Operand>(scores, rounded_scores);

        for (Index start = 0, end = 0; start < length; start = end) {
          end = documents.end(head / shape.num_heads, start);
          for (Index q0 = start; q0 < end; q0 += tile) {
            const Index queries = smaller(tile, end - q0);
            team.team_barrier();  // the tiles of the last round are no longer read
            const HeadRows<const Operand> q_rows = operand_rows<T>(team, q, q0, queries, width, q_copy);
            const Index first = first_key(shape, q0, start);  // of all of them: each sees keys of the first tile
            for (Index k0 = first; k0 < q0 + queries; k0 += key_tile) {
              const Index keys = smaller(key_tile, q0 + queries - k0);
              team.team_barrier();  // the tiles of the last round are no longer read
              const HeadRows<const Operand> k_rows = operand_rows<T>(team, k, k0, keys, width, k_copy);
              const HeadRows<const Operand> v_rows = operand_rows<T>(team, v, k0, keys, width, v_copy);
              team.team_barrier();
              tile_matmul(scores.data(), keys, Transpose::no, q_rows.first, q_rows.stride, Transpose::yes, k_rows.first,
                          k_rows.stride, queries, keys, width, S(0));
              team.team_barrier();
              for (Index i = 0; i < queries; ++i) {
                S* const row = scores.data() + i * keys;
                Operand* const weights = probabilities + i * keys;
                const Index visible = smaller(keys, q0 + i + 1 - k0);  // keys not after the query; 0 or less: none here
                // Keys before its window.
                const Index hidden = k0 == first ? first_key(shape, q0 + i, start) - first : 0;
                if (visible <= 0) {
                  row_for(team, keys, [&](const Index j) { weights[j] = Operand(0); });
                  continue;
                }
                const S* const seen = row + hidden;
                const S tile_largest =
                    scale * row_max<S>(team, visible - hidden, [=](const Index j) { return seen[j]; });
                const S old_largest = k0 == first ? tile_largest : largest(i);
                const S new_largest = tile_largest > old_largest ? tile_largest : old_largest;
                row_for(team, keys,
                        [&](const Index j) { row[j] = j < visible ? vector_exp(scale * row[j] - new_largest) : S(0); });
                team.team_barrier();
                row_for(team, hidden, [&](const Index j) { row[j] = S(0); });
                team.team_barrier();
                const S row_total = row_sum<S>(team, visible, [=](const Index j) { return row[j]; });
                if (dropout.is_on())
                  dropout.dropout.apply(team, row, row, dropout.row(shape, head, q0 + i), k0, visible);
                if constexpr (!std::is_same_v<Operand, S>)
                  row_for(team, keys, [&](const Index j) { weights[j] = static_cast<Operand>(row[j]); });
                const S shrink = k0 == first ? S(0) : vector_exp(old_largest - new_largest);
                if (k0 > first)
                  row_for(team, width, [&](const Index c) { sum(i * width + c) *= shrink; });
                const S old_denominator = k0 == first ? S(0) : denominator(i);
                team.team_barrier();  // every member has read the old maximum and denominator
                Kokkos::single(Kokkos::PerTeam(team), [&]() {
                  largest(i) = new_largest;
                  denominator(i) = old_denominator * shrink + row_total;
                });
              }
              team.team_barrier();
              tile_matmul(sum.data(), width, Transpose::no, probabilities, keys, Transpose::no, v_rows.first,
                          v_rows.stride, queries, width, keys, k0 == first ? S(0) : S(1));
            }
            team.team_barrier();
            for (Index i = 0; i < queries; ++i) {
              const S inverse = S(1) / denominator(i);
              T* const row = o.row(q0 + i);
              row_for(team, width, [&](const Index c) { row[c] = static_cast<T>(sum(i * width + c) * inverse); });
              Kokkos::single(Kokkos::PerTeam(team),
                             [&]() { log_sum_exp(head * length + q0 + i) = largest(i) + compat::log(denominator(i)); });
            }
          }
        }
      });
}

template <class T, class Operand>
void backward_in(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout, const Tensor<T, 2>& out,
                 const Tensor<State<T>, 1>& log_sum_exp, const Tensor<T, 2>& qkv, const AttentionShape& shape,
                 const AttentionDropout& dropout, const Documents& documents) {
  using S = State<T>;
  constexpr Index tile = query_tile<Operand>;
  const S scale = static_cast<S>(shape.scale());
  const Index score_size = tile * key_tile;
  const Index query_size = tile * shape.head_size;
  const Index key_size = key_tile * shape.head_size;
  const Index dq_size = shape.sequence_length * shape.head_size;
  const Index group = shape.group();
  const Index dk_size = group == 1 ? key_size : dq_size;  // kept from one head of a group to the next
  const TeamPolicy policy =
      head_policy<S, Operand>(exec, shape, shape.num_kv_heads, {score_size, score_size, dk_size, dk_size, dq_size},
                              {rounded<T, Operand>(score_size), rounded<T, Operand>(score_size), copied<T>(query_size),
                               copied<T>(query_size), copied<T>(key_size), copied<T>(key_size)});
  // With P the probabilities and dP = dO V^T:  dV = P^T dO,  dS = P * (dP - rowsum(dO * O)) scale,  dQ = dS K,
  // dK = dS^T Q. P is made again from the saved log of its denominator. Gradients are summed in the state type:
  // those of a tile of keys while queries pass, those of all queries while tiles of keys do. A team has the heads of a
  // group one after the other.
  Kokkos::parallel_for(
      "espalier::core::attention_backward", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index length = shape.sequence_length;
        const Index width = shape.head_size;
        const ScratchVector<S> scores(team.team_scratch(int{scratch_level}), score_size);   // (TQ, TK)
        const ScratchVector<S> dscores(team.team_scratch(int{scratch_level}), score_size);  // (TQ, TK)
        const ScratchVector<S> dk(team.team_scratch(int{scratch_level}), dk_size);          // (TK or T, HS)
        const ScratchVector<S> dv(team.team_scratch(int{scratch_level}), dk_size);          // (TK or T, HS)
        const ScratchVector<S> dq(team.team_scratch(int{scratch_level}), dq_size);          // (T, HS)
        const ScratchVector<Operand> rounded_scores(team.team_scratch(int{scratch_level}),
                                                    rounded<T, Operand>(score_size));  // (TQ, TK)
        const ScratchVector<Operand> rounded_dscores(team.team_scratch(int{scratch_level}),
                                                     rounded<T, Operand>(score_size));                       // (TQ, TK)
        const ScratchVector<Operand> q_copy(team.team_scratch(int{scratch_level}), copied<T>(query_size));   // (TQ, HS)
        const ScratchVector<Operand> do_copy(team.team_scratch(int{scratch_level}), copied<T>(query_size));  // (TQ, HS)
        const ScratchVector<Operand> k_copy(team.team_scratch(int{scratch_level}), copied<T>(key_size));     // (TK, HS)
        const ScratchVector<Operand> v_copy(team.team_scratch(int{scratch_level}), copied<T>(key_size));     // (TK, HS)
        Operand* const p = weights_of<Operand>(scores, rounded_scores);
        Operand* const ds = weights_of<Operand>(dscores, rounded_dscores);
        const auto store = [&](const HeadPart part, const Index head, const Index t, const Index rows, const S* from) {
          const HeadRows<T> to = head_of<T>(dqkv, shape, head, part);
          for (Index i = 0; i < rows; ++i) {
            T* const row = to.row(t + i);
            row_for(team, width, [&](const Index c) { row[c] = static_cast<T>(from[i * width + c]); });
          }
        };

        for (Index g = 0; g < group; ++g) {
          const Index head = team.league_rank() * group + g;
          const HeadRows<T> q = head_of<T>(qkv, shape, head);
          const HeadRows<T> k = head_of<T>(qkv, shape, head, HeadPart::key);
          const HeadRows<T> v = head_of<T>(qkv, shape, head, HeadPart::value);
          const HeadRows<T> o = head_of<T>(out, shape, head);
          const HeadRows<T> d_o = head_of<T>(dout, shape, head);
          for (Index start = 0, end = 0; start < length; start = end) {
            end = documents.end(head / shape.num_heads, start);
            for (Index k0 = start; k0 < end; k0 += key_tile) {
              const Index all_keys = smaller(key_tile, end - k0);
              team.team_barrier();  // the tiles of the last round are no longer read
              const HeadRows<const Operand> k_rows = operand_rows<T>(team, k, k0, all_keys, width, k_copy);
              const HeadRows<const Operand> v_rows = operand_rows<T>(team, v, k0, all_keys, width, v_copy);
              S* const dk_tile = dk.data() + (group == 1 ? 0 : k0 * width);
              S* const dv_tile = dv.data() + (group == 1 ? 0 : k0 * width);
              if (g == 0)
                row_for(team, all_keys * width, [&](const Index i) { dk_tile[i] = dv_tile[i] = S(0); });
              const Index queries_end = end_of_queries(shape, k0 + all_keys - 1, end);
              for (Index q0 = k0; q0 < queries_end; q0 += tile) {  // tiles of queries begin where some of keys do
                const Index queries = smaller(tile, end - q0);
                const Index first_seen = first_key(shape, q0, start);
                const Index skipped = first_seen > k0 ? first_seen - k0 : 0;  // keys that none of them sees any more
                const Index first = k0 + skipped;
                const Index keys = smaller(all_keys - skipped, q0 + queries - first);  // nor later ones yet
                team.team_barrier();  // the tiles of the last round are no longer read
                const HeadRows<const Operand> q_rows = operand_rows<T>(team, q, q0, queries, width, q_copy);
                const HeadRows<const Operand> do_rows = operand_rows<T>(team, d_o, q0, queries, width, do_copy);
                team.team_barrier();
                tile_matmul(scores.data(), keys, Transpose::no, q_rows.first, q_rows.stride, Transpose::yes,
                            k_rows.row(skipped), k_rows.stride, queries, keys, width, S(0));
                tile_matmul(dscores.data(), keys, Transpose::no, do_rows.first, do_rows.stride, Transpose::yes,
                            v_rows.row(skipped), v_rows.stride, queries, keys, width, S(0));
                team.team_barrier();
                for (Index i = 0; i < queries; ++i) {
                  S* const score = scores.data() + i * keys;
                  S* const dp = dscores.data() + i * keys;
                  Operand* const p_row = p + i * keys;
                  Operand* const ds_row = ds + i * keys;
                  const Index visible = smaller(keys, q0 + i + 1 - first);
                  const Index hidden = smaller(keys, first_key(shape, q0 + i, start) - first);  // 0 or less: none
                  const S log_sum = log_sum_exp(head * length + q0 + i);
                  const S projection = row_sum<S>(team, width, [&](const Index c) {
                    return static_cast<S>(d_o.row(q0 + i)[c]) * static_cast<S>(o.row(q0 + i)[c]);
                  });
                  const Index dropout_row = dropout.row(shape, head, q0 + i);
                  if (dropout.is_on())
                    dropout.dropout.apply(team, dp, dp, dropout_row, first, visible);
                  row_for(team, keys, [&](const Index j) {
                    score[j] = j < visible ? vector_exp(scale * score[j] - log_sum) : S(0);
                    dp[j] = scale * score[j] * (dp[j] - projection);
                  });
                  if (dropout.is_on())
                    dropout.dropout.apply(team, score, score, dropout_row, first, visible);
                  team.team_barrier();
                  row_for(team, hidden, [&](const Index j) { score[j] = dp[j] = S(0); });
                  if constexpr (!std::is_same_v<Operand, S>) {  // by itself: loops of one width are vectorised best
                    row_for(team, keys, [&](const Index j) { p_row[j] = static_cast<Operand>(score[j]); });
                    row_for(team, keys, [&](const Index j) { ds_row[j] = static_cast<Operand>(dp[j]); });
                  }
                }
                team.team_barrier();
                tile_matmul(dv_tile + skipped * width, width, Transpose::yes, p, keys, Transpose::no, do_rows.first,
                            do_rows.stride, keys, width, queries, S(1));
                tile_matmul(dk_tile + skipped * width, width, Transpose::yes, ds, keys, Transpose::no, q_rows.first,
                            q_rows.stride, keys, width, queries, S(1));
                // A tile of queries is first met with the first key that it sees.
                tile_matmul(dq.data() + q0 * width, width, Transpose::no, ds, keys, Transpose::no, k_rows.row(skipped),
                            k_rows.stride, queries, width, keys, k0 <= first_seen ? S(0) : S(1));
              }
              team.team_barrier();
              if (g == group - 1) {
                store(HeadPart::key, head, k0, all_keys, dk_tile);
                store(HeadPart::value, head, k0, all_keys, dv_tile);
              }
            }
          }
          store(HeadPart::query, head, 0, length, dq.data());
        }
      });
}

}  // namespace

template <class T>
void attention_forward(const ExecSpace& exec, Tensor<T, 2> out, Tensor<State<T>, 1> log_sum_exp, Tensor<T, 2> qkv,
                       const AttentionShape& shape, const AttentionDropout& dropout, Tensor<int, 1> positions) {
  if constexpr (!exec_is_host) {
    if constexpr (has_master_weights<T>) {
      const bool by_cudnn =
          attention_library() == AttentionLibrary::cudnn && !dropout.is_on() && positions.extent(0) == 0;
      if (by_cudnn &&
          impl::attention_forward_cudnn(exec, scalar_type_of<T>(), out.data(), log_sum_exp.data(), qkv.data(), shape))
        return;
    }
    impl::attention_forward_rows<T>(exec, out, log_sum_exp, qkv, shape, dropout, positions);
  } else {
    const Documents documents{positions, shape.sequence_length};
    if constexpr (std::is_same_v<T, bfloat16>)
      if (multiplies_16_bits(scalar_type_of<T>(), matmul_library()))
        return forward_in<T, T>(exec, out, log_sum_exp, qkv, shape, dropout, documents);
    forward_in<T, State<T>>(exec, out, log_sum_exp, qkv, shape, dropout, documents);
  }
}

template <class T>
void attention_backward(const ExecSpace& exec, Tensor<T, 2> dqkv, Tensor<T, 2> dout, Tensor<T, 2> out,
                        Tensor<State<T>, 1> log_sum_exp, Tensor<T, 2> qkv, const AttentionShape& shape,
                        const AttentionDropout& dropout, Tensor<int, 1> positions) {
  if constexpr (!exec_is_host) {
    if constexpr (has_master_weights<T>) {
      const bool by_cudnn =
          attention_library() == AttentionLibrary::cudnn && !dropout.is_on() && positions.extent(0) == 0;
      if (by_cudnn && impl::attention_backward_cudnn(exec, scalar_type_of<T>(), dqkv.data(), dout.data(), out.data(),
                                                     log_sum_exp.data(), qkv.data(), shape))
        return;
    }
    impl::attention_backward_rows<T>(exec, dqkv, dout, out, log_sum_exp, qkv, shape, dropout, positions);
  } else {
    const Documents documents{positions, shape.sequence_length};
    if constexpr (std::is_same_v<T, bfloat16>)
      if (multiplies_16_bits(scalar_type_of<T>(), matmul_library()))
        return backward_in<T, T>(exec, dqkv, dout, out, log_sum_exp, qkv, shape, dropout, documents);
    backward_in<T, State<T>>(exec, dqkv, dout, out, log_sum_exp, qkv, shape, dropout, documents);
  }
}

#define ESPALIER_INSTANTIATE(T)                                                                                        \
  template void attention_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<State<T>, 1>, Tensor<T, 2>,                \
                                     const AttentionShape&, const AttentionDropout&, Tensor<int, 1>);                  \
  template void attention_backward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<State<T>, 1>, \
                                      Tensor<T, 2>, const AttentionShape&, const AttentionDropout&, Tensor<int, 1>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
