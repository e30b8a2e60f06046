// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cross_entropy.hpp"

#include "core/vector_math.hpp"

namespace espalier::impl {

// Largest logit, and the sum of exp(logit - largest). Two of them can be added (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018).
template <class S>
struct Softmax {
  S largest = lowest<S>;
  S sum = 0;

  KOKKOS_INLINE_FUNCTION Softmax& operator+=(const Softmax& other) {
    const S old = largest;
    largest = other.largest > old ? other.largest : old;
    sum = sum * vector_exp(old - largest) + other.sum * vector_exp(other.largest - largest);
    return *this;
  }
};

}  // namespace espalier::impl

template <class S>
struct Kokkos::reduction_identity<espalier::impl::Softmax<S>> {
  KOKKOS_INLINE_FUNCTION static espalier::impl::Softmax<S> sum() { return {}; }
};

namespace espalier {
namespace {

using impl::Softmax;

// One team a row. GPUs read a row of logits twice: where it is too long for the first-level cache, teams of 512 keep
// the rows under way few enough for the second-level one, three on each multiprocessor.
using LogitsPolicy = Kokkos::TeamPolicy<ExecSpace, Kokkos::LaunchBounds<512, 3>>;
LogitsPolicy logits_policy(const ExecSpace& exec, Index rows, [[maybe_unused]] Index columns) {
  if constexpr (exec_is_host)
    return LogitsPolicy(exec, team_count(rows), 1);
  else
    return LogitsPolicy(exec, team_count(rows), columns > 8192 ? 16 : 4, 32);
}

template <class S, class T>
KOKKOS_INLINE_FUNCTION S row_exp_sum(const TeamMember& team, const T* row, Index columns, S largest) {
  return sum_of_row<S>(
      team, columns, [=](const T logit) { return vector_exp(static_cast<S>(logit) - largest); }, row);
}

// Hosts read a row twice, from their caches; GPUs, where it comes from memory, once.
template <class S, class T>
KOKKOS_INLINE_FUNCTION Softmax<S> row_softmax(const TeamMember& team, const T* row, Index columns) {
  if constexpr (exec_is_host) {
    const S largest = max_of_row<S>(team, columns, row);
    return {largest, row_exp_sum<S>(team, row, columns, largest)};
  } else {
    const Index packs = impl::packs_of(columns, row);
    const Index done = packs * Pack<T>::size;
    const auto of_pack = [](const Pack<T> logits) {
      Softmax<S> softmax{impl::largest_of<S>(logits), 0};
      for (int i = 0; i < Pack<T>::size; ++i)
        softmax.sum += vector_exp(static_cast<S>(logits.values[i]) - softmax.largest);
      return softmax;
    };
    return row_sum<Softmax<S>>(team, packs + columns - done, [=](const Index p) {
      return p < packs ? of_pack(impl::pack_at(row, p)) : Softmax<S>{static_cast<S>(row[done + p - packs]), 1};
    });
  }
}

template <class S, class T>
KOKKOS_INLINE_FUNCTION S row_loss(const Softmax<S>& softmax, const T* row, TokenId target) {
  return target < 0 ? S(0) : compat::log(softmax.sum) + softmax.largest - static_cast<S>(row[target]);
}

// weight * (softmax - onehot(target)) in place of a row of logits; no one-hot for a target < 0.
template <class S, class T>
KOKKOS_INLINE_FUNCTION void row_gradient(const TeamMember& team, const Softmax<S>& softmax, T* row, Index target,
                                         Index columns, S weight) {
  const S factor = weight / softmax.sum;
  // Of a confident row softmax is almost 1: subtracted after it was rounded to 16 bits, nothing right would be left.
  const S at_target = target < 0 ? S(0) : factor * vector_exp(static_cast<S>(row[target]) - softmax.largest) - weight;
  team.team_barrier();  // everyone has read the target's logit
  const auto gradient = [&](const T logit) {
    return static_cast<T>(factor * vector_exp(static_cast<S>(logit) - softmax.largest));
  };
  map_row(team, columns, row, gradient, static_cast<const T*>(row));
  team.team_barrier();  // the whole row is softmax before the target is set
  Kokkos::single(Kokkos::PerTeam(team), [&]() {
    if (target >= 0)
      row[target] = static_cast<T>(at_target);
  });
}

}  // namespace

template <class T>
void cross_entropy_forward(const ExecSpace& exec, Tensor<State<T>, 1> losses, Tensor<T, 2> logits,
                           Tensor<TokenId, 1> targets) {
  using S = State<T>;
  const Index columns = logits.extent(1);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_forward", logits_policy(exec, logits.extent(0), columns),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        const T* const row = &logits(n, 0);
        const Softmax<S> softmax = row_softmax<S>(team, row, columns);
        Kokkos::single(Kokkos::PerTeam(team), [&]() { losses(n) = row_loss(softmax, row, targets(n)); });
      });
}

template <class T>
void cross_entropy_forward_backward(const ExecSpace& exec, Tensor<State<T>, 1> losses, Tensor<T, 2> logits,
                                    Tensor<TokenId, 1> targets, State<T> scale) {
  using S = State<T>;
  const Index columns = logits.extent(1);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_forward_backward", logits_policy(exec, logits.extent(0), columns),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        const TokenId target = targets(n);
        T* const row = &logits(n, 0);
        const Softmax<S> softmax = row_softmax<S>(team, row, columns);
        Kokkos::single(Kokkos::PerTeam(team), [&]() { losses(n) = row_loss(softmax, row, target); });
        team.team_barrier();  // the loss has read its logit
        row_gradient(team, softmax, row, target, columns, target < 0 ? S(0) : scale);
      });
}

template <class T>
void cross_entropy_largest(const ExecSpace& exec, Tensor<State<T>, 1> largest, Tensor<T, 2> logits) {
  using S = State<T>;
  const Index columns = logits.extent(1);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_largest", logits_policy(exec, logits.extent(0), columns),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        const S value = max_of_row<S>(team, columns, &logits(n, 0));
        Kokkos::single(Kokkos::PerTeam(team), [&]() { largest(n) = value; });
      });
}

template <class T>
void cross_entropy_sums(const ExecSpace& exec, Tensor<State<T>, 1> sums, Tensor<T, 2> logits,
                        Tensor<TokenId, 1> targets, Tensor<State<T>, 1> largest, Index first_token) {
  using S = State<T>;
  const Index rows = logits.extent(0);
  const Index columns = logits.extent(1);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_sums", logits_policy(exec, rows, columns), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        const T* const row = &logits(n, 0);
        const S sum = row_exp_sum<S>(team, row, columns, largest(n));
        Kokkos::single(Kokkos::PerTeam(team), [&]() {
          const Index target = targets(n) - first_token;
          sums(n) = sum;
          sums(rows + n) = targets(n) >= 0 && target >= 0 && target < columns ? static_cast<S>(row[target]) : S(0);
        });
      });
}

template <class S>
void cross_entropy_losses(const ExecSpace& exec, Tensor<S, 1> losses, Tensor<TokenId, 1> targets, Tensor<S, 1> largest,
                          Tensor<S, 1> sums) {
  const Index rows = losses.extent(0);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_losses", RangePolicy(exec, 0, rows), KOKKOS_LAMBDA(const Index n) {
        losses(n) = targets(n) < 0 ? S(0) : compat::log(sums(n)) + largest(n) - sums(rows + n);
      });
}

template <class T>
void cross_entropy_split_backward(const ExecSpace& exec, Tensor<T, 2> logits, Tensor<TokenId, 1> targets,
                                  Tensor<State<T>, 1> largest, Tensor<State<T>, 1> sums, Index first_token,
                                  State<T> scale) {
  using S = State<T>;
  const Index columns = logits.extent(1);
  Kokkos::parallel_for(
      "espalier::core::cross_entropy_split_backward", logits_policy(exec, logits.extent(0), columns),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        const S weight = targets(n) < 0 ? S(0) : scale;  // an ignored row has no gradient on any rank
        const Index target = targets(n) - first_token;
        const bool ours = targets(n) >= 0 && target >= 0 && target < columns;
        row_gradient(team, Softmax<S>{largest(n), sums(n)}, &logits(n, 0), ours ? target : Index{-1}, columns, weight);
      });
}

template <class S>
void add_losses(const ExecSpace& exec, Tensor<double, 0> total, Tensor<S, 1> losses, double scale) {
  const Index rows = losses.extent(0);
  Kokkos::parallel_for(
      "espalier::core::add_losses", row_policy(exec, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const double sum =
            sum_in_order<double>(team, rows, [=](const Index n) { return static_cast<double>(losses(n)); });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { total() += scale * sum; });
      });
}

#define ESPALIER_INSTANTIATE(T)                                                                                    \
  template void cross_entropy_forward<T>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>, Tensor<TokenId, 1>); \
  template void cross_entropy_forward_backward<T>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>,             \
                                                  Tensor<TokenId, 1>, State<T>);                                   \
  template void cross_entropy_largest<T>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>);                     \
  template void cross_entropy_sums<T>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>, Tensor<TokenId, 1>,     \
                                      Tensor<State<T>, 1>, Index);                                                 \
  template void cross_entropy_split_backward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<TokenId, 1>,                \
                                                Tensor<State<T>, 1>, Tensor<State<T>, 1>, Index, State<T>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(S)                                                                           \
  template void cross_entropy_losses<S>(const ExecSpace&, Tensor<S, 1>, Tensor<TokenId, 1>, Tensor<S, 1>, \
                                        Tensor<S, 1>);                                                    \
  template void add_losses<S>(const ExecSpace&, Tensor<double, 0>, Tensor<S, 1>, double);
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
