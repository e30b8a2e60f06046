// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_rows.hpp"

#include <fmt/format.h>

#include <limits>

#include "core/error.hpp"
#include "core/ops/attention_heads.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {
namespace {

constexpr Index lanes = 32;                           // keys or queries that a row meets at once
constexpr int team_threads = exec_is_host ? 1 : 8;    // of a team, a row each
constexpr int vector_length = exec_is_host ? 1 : 32;  // of a thread

template <class S>
using ScratchVector = Kokkos::View<S*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;

template <class S, class T>
KOKKOS_INLINE_FUNCTION S dot(const T* a, const T* b, Index width) {
  S sum = 0;
  for (Index c = 0; c < width; ++c)
    sum += static_cast<S>(a[c]) * static_cast<S>(b[c]);
  return sum;
}

// Which row of which head (of queries, or of keys) a thread works on, and where its scratch memory lies.
struct RowOfThread {
  Index teams_per_head;
  int level;  // of scratch memory
  KOKKOS_INLINE_FUNCTION Index head(const TeamMember& team) const { return team.league_rank() / teams_per_head; }
  KOKKOS_INLINE_FUNCTION Index row(const TeamMember& team) const {
    return team.league_rank() % teams_per_head * team_threads + team.team_rank();
  }
};

// Teams for all rows of `heads` heads of each sequence, and scratch memory of a thread for `rows` rows of a head and
// `weights` times lanes.
struct RowPlan {
  TeamPolicy policy;
  RowOfThread work;
};

template <class S>
RowPlan plan_rows(const ExecSpace& exec, const AttentionShape& shape, Index heads, Index rows, Index weights) {
  constexpr std::size_t fast_bytes = std::size_t{40} << 10;  // of a team: every GPU has 48 KiB
  const Index teams_per_head = (shape.sequence_length + team_threads - 1) / team_threads;
  const Index teams = shape.batch * heads * teams_per_head;
  const std::size_t bytes = static_cast<std::size_t>(rows) * ScratchVector<S>::shmem_size(shape.head_size) +
                            static_cast<std::size_t>(weights) * ScratchVector<S>::shmem_size(lanes);
  if (teams > std::numeric_limits<int>::max() || bytes > std::numeric_limits<int>::max() / team_threads)
    throw Error(ExitCode::usage, {.what = "attention needs more teams or scratch memory than Kokkos can count",
                                  .got = fmt::format("{} heads of {} positions of {} channels", shape.batch * heads,
                                                     shape.sequence_length, shape.head_size),
                                  .wanted = "fewer than 2^31 rows, of fewer than 2^25 channels",
                                  .todo = "raise model.num_heads, or shorten batch.sequence_length"});
  const int level = team_threads * bytes <= fast_bytes ? 0 : 1;
  TeamPolicy policy(exec, static_cast<int>(teams), team_threads, vector_length);
  policy.set_scratch_size(level, Kokkos::PerThread(static_cast<int>(bytes)));
  return {policy, {teams_per_head, level}};
}

// f(lane) for each lane below `count`.
template <class F>
KOKKOS_INLINE_FUNCTION void for_lanes(const TeamMember& team, Index count, const F& f) {
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count), f);
}

}  // namespace

template <class T>
void attention_forward_rows(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp,
                            const Tensor<T, 2>& qkv, const AttentionShape& shape, const AttentionDropout& dropout,
                            const Tensor<int, 1>& positions) {
  using S = State<T>;
  const Documents documents{positions, shape.sequence_length};
  const S scale = static_cast<S>(shape.scale());
  const RowPlan plan = plan_rows<S>(exec, shape, shape.num_heads, 1, 1);
  const RowOfThread work = plan.work;
  Kokkos::parallel_for(
      "espalier::core::attention_forward_rows", plan.policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index width = shape.head_size;
        const Index head = work.head(team);
        const Index query = work.row(team);
        const ScratchVector<S> sum(team.thread_scratch(work.level), width);  // of P V
        const ScratchVector<S> p(team.thread_scratch(work.level), Index{lanes});
        if (query >= shape.sequence_length)
          return;
        const T* const q = head_of<T>(qkv, shape, head).row(query);
        const HeadRows<T> k = head_of<T>(qkv, shape, head, HeadPart::key);
        const HeadRows<T> v = head_of<T>(qkv, shape, head, HeadPart::value);
        S largest = 0, denominator = 0;
        const Index first = first_key(shape, query, documents.start(head / shape.num_heads, query));
        for (Index k0 = first; k0 <= query; k0 += lanes) {
          const Index keys = smaller(lanes, query + 1 - k0);
          for_lanes(team, keys, [&](const Index j) { p(j) = scale * dot<S>(q, k.row(k0 + j), width); });
          S new_largest = -Kokkos::reduction_identity<S>::min();
          Kokkos::parallel_reduce(
              Kokkos::ThreadVectorRange(team, keys), [&](const Index j, S& most) { most = p(j) > most ? p(j) : most; },
              Kokkos::Max<S>(new_largest));
          new_largest = k0 > first && largest > new_largest ? largest : new_largest;
          const S shrink = k0 == first ? S(0) : vector_exp(largest - new_largest);
          for_lanes(team, keys, [&](const Index j) { p(j) = vector_exp(p(j) - new_largest); });
          S total = 0;
          Kokkos::parallel_reduce(
              Kokkos::ThreadVectorRange(team, keys), [&](const Index j, S& partial) { partial += p(j); }, total);
          if (dropout.is_on())
            for_lanes(team, keys, [&](const Index j) { p(j) *= dropout.factor<S>(shape, head, query, k0 + j); });
          largest = new_largest;
          denominator = denominator * shrink + total;
          for_lanes(team, width, [&](const Index c) {
            S weighted = k0 == first ? S(0) : shrink * sum(c);
            for (Index j = 0; j < keys; ++j)
              weighted += p(j) * static_cast<S>(v.row(k0 + j)[c]);
            sum(c) = weighted;
          });
        }
        T* const row = head_of<T>(out, shape, head).row(query);
        for_lanes(team, width, [&](const Index c) { row[c] = static_cast<T>(sum(c) / denominator); });
        Kokkos::single(Kokkos::PerThread(team), [&]() {
          log_sum_exp(head * shape.sequence_length + query) = largest + compat::log(denominator);
        });
      });
}

// With P the probabilities and dP = dO V^T:  dV = P^T dO,  dS = P * (dP - rowsum(dO * O)) scale,  dQ = dS K,
// dK = dS^T Q. A row of dQ belongs to one thread, and a row of dK and of dV with the queries of all heads of its group:
// P and dP are made twice.

template <class T>
void query_gradient_rows(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                         const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                         const AttentionShape& shape, const AttentionDropout& dropout, const Documents& documents) {
  using S = State<T>;
  const S scale = static_cast<S>(shape.scale());
  const RowPlan plan = plan_rows<S>(exec, shape, shape.num_heads, 1, 1);
  const RowOfThread work = plan.work;
  Kokkos::parallel_for(
      "espalier::core::attention_query_gradient_rows", plan.policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index width = shape.head_size;
        const Index head = work.head(team);
        const Index query = work.row(team);
        const ScratchVector<S> dq(team.thread_scratch(work.level), width);
        const ScratchVector<S> ds(team.thread_scratch(work.level), Index{lanes});
        if (query >= shape.sequence_length)
          return;
        const T* const q = head_of<T>(qkv, shape, head).row(query);
        const HeadRows<T> k = head_of<T>(qkv, shape, head, HeadPart::key);
        const HeadRows<T> v = head_of<T>(qkv, shape, head, HeadPart::value);
        const T* const d_o = head_of<T>(dout, shape, head).row(query);
        const S log_sum = log_sum_exp(head * shape.sequence_length + query);
        const S projection = dot<S>(d_o, head_of<T>(out, shape, head).row(query), width);
        const Index first = first_key(shape, query, documents.start(head / shape.num_heads, query));
        for (Index k0 = first; k0 <= query; k0 += lanes) {
          const Index keys = smaller(lanes, query + 1 - k0);
          for_lanes(team, keys, [&](const Index j) {
            const S probability = vector_exp(scale * dot<S>(q, k.row(k0 + j), width) - log_sum);
            const S kept = dropout.factor<S>(shape, head, query, k0 + j);
            ds(j) = scale * probability * (kept * dot<S>(d_o, v.row(k0 + j), width) - projection);
          });
          for_lanes(team, width, [&](const Index c) {
            S sum = k0 == first ? S(0) : dq(c);
            for (Index j = 0; j < keys; ++j)
              sum += ds(j) * static_cast<S>(k.row(k0 + j)[c]);
            dq(c) = sum;
          });
        }
        T* const row = head_of<T>(dqkv, shape, head).row(query);
        for_lanes(team, width, [&](const Index c) { row[c] = static_cast<T>(dq(c)); });
      });
}

template <class T>
void key_gradient_rows(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                       const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                       const AttentionShape& shape, const AttentionDropout& dropout, const Documents& documents) {
  using S = State<T>;
  const S scale = static_cast<S>(shape.scale());
  const RowPlan plan = plan_rows<S>(exec, shape, shape.num_kv_heads, 2, 2);
  const Index group = shape.group();
  const RowOfThread work = plan.work;
  Kokkos::parallel_for(
      "espalier::core::attention_key_gradient_rows", plan.policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index width = shape.head_size;
        const Index length = shape.sequence_length;
        const Index first_head = work.head(team) * group;
        const Index key = work.row(team);
        const ScratchVector<S> dk(team.thread_scratch(work.level), width), dv(team.thread_scratch(work.level), width);
        const ScratchVector<S> p(team.thread_scratch(work.level), Index{lanes});
        const ScratchVector<S> ds(team.thread_scratch(work.level), Index{lanes});
        if (key >= length)
          return;
        const T* const k = head_of<T>(qkv, shape, first_head, HeadPart::key).row(key);
        const T* const v = head_of<T>(qkv, shape, first_head, HeadPart::value).row(key);
        const Index end = end_of_queries(shape, key, documents.end(first_head / shape.num_heads, key));
        for (Index head = first_head; head < first_head + group; ++head) {
          const HeadRows<T> q = head_of<T>(qkv, shape, head);
          const HeadRows<T> o = head_of<T>(out, shape, head), d_o = head_of<T>(dout, shape, head);
          for (Index q0 = key; q0 < end; q0 += lanes) {
            const bool is_first = head == first_head && q0 == key;
            const Index queries = smaller(lanes, end - q0);
            for_lanes(team, queries, [&](const Index i) {
              const T* const d_row = d_o.row(q0 + i);
              const S kept = dropout.factor<S>(shape, head, q0 + i, key);
              p(i) = vector_exp(scale * dot<S>(q.row(q0 + i), k, width) - log_sum_exp(head * length + q0 + i));
              ds(i) = scale * p(i) * (kept * dot<S>(d_row, v, width) - dot<S>(d_row, o.row(q0 + i), width));
              p(i) *= kept;
            });
            for_lanes(team, width, [&](const Index c) {
              S dk_sum = is_first ? S(0) : dk(c), dv_sum = is_first ? S(0) : dv(c);
              for (Index i = 0; i < queries; ++i) {
                dk_sum += ds(i) * static_cast<S>(q.row(q0 + i)[c]);
                dv_sum += p(i) * static_cast<S>(d_o.row(q0 + i)[c]);
              }
              dk(c) = dk_sum;
              dv(c) = dv_sum;
            });
          }
        }
        T* const dk_row = head_of<T>(dqkv, shape, first_head, HeadPart::key).row(key);
        T* const dv_row = head_of<T>(dqkv, shape, first_head, HeadPart::value).row(key);
        for_lanes(team, width, [&](const Index c) {
          dk_row[c] = static_cast<T>(dk(c));
          dv_row[c] = static_cast<T>(dv(c));
        });
      });
}

template <class T>
void attention_backward_rows(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                             const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                             const AttentionShape& shape, const AttentionDropout& dropout,
                             const Tensor<int, 1>& positions) {
  const Documents documents{positions, shape.sequence_length};
  query_gradient_rows<T>(exec, dqkv, dout, out, log_sum_exp, qkv, shape, dropout, documents);
  key_gradient_rows<T>(exec, dqkv, dout, out, log_sum_exp, qkv, shape, dropout, documents);
}

#define ESPALIER_INSTANTIATE(T)                                                                                  \
  template void attention_forward_rows<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<State<T>, 1>&,     \
                                          const Tensor<T, 2>&, const AttentionShape&, const AttentionDropout&,   \
                                          const Tensor<int, 1>&);                                                \
  template void attention_backward_rows<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<T, 2>&,           \
                                           const Tensor<T, 2>&, const Tensor<State<T>, 1>&, const Tensor<T, 2>&, \
                                           const AttentionShape&, const AttentionDropout&, const Tensor<int, 1>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
