// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/vector_math.hpp"

// Backward of layernorm and RMSNorm on GPUs: input gradients and, from the same reading of dy and x, partial sums of
// the weight gradients. Letters as in layernorm.hpp.

namespace espalier::impl {

// The two sums over a row that its input gradient takes: of g = dy * weight, and of g * xhat.
template <class S>
struct RowSums {
  S gradient = 0, projection = 0;

  KOKKOS_INLINE_FUNCTION RowSums& operator+=(const RowSums& other) {
    gradient += other.gradient;
    projection += other.projection;
    return *this;
  }
};

}  // namespace espalier::impl

template <class S>
struct Kokkos::reduction_identity<espalier::impl::RowSums<S>> {
  KOKKOS_INLINE_FUNCTION static espalier::impl::RowSums<S> sum() { return {}; }
};

namespace espalier::impl {

inline constexpr Index max_threads_of_a_row = 512;

// One for each pack, in whole warps.
constexpr Index threads_of_a_row(Index channels) {
  constexpr Index warp = 32;
  return (channels / Pack<int>::size + warp - 1) / warp * warp;
}

/// P: as many teams as an A100 runs at once, by the registers that they take; one more would wait for a second
/// round.
inline Index norm_partial_rows(Index rows, Index channels) {
  constexpr Index multiprocessors = 108, threads_of_each = 768;
  if (exec_is_host || channels % Pack<int>::size != 0 || channels > Pack<int>::size * max_threads_of_a_row)
    return 0;
  return smaller(rows, multiprocessors * std::max<Index>(1, threads_of_each / threads_of_a_row(channels)));
}

/// Terms of partial sums (P, Count * C), for column_sums().
template <class S, int Count>
struct PartialTerms {
  Tensor<S, 2> partial;  // (P, Count * C)
  Index channels;        // C

  template <int size>
  KOKKOS_INLINE_FUNCTION void operator()(S (&terms)[Count][size], Index p, Index c) const {
    for (int k = 0; k < Count; ++k) {
      const auto values = pack_at<size>(&partial(p, k * channels + c), 0);
      for (int i = 0; i < size; ++i)
        terms[k][i] = values.values[i];
    }
  }
};

/// Team p takes rows p, p + P, ... one after the other, each of its threads the same pack of columns of all of them,
/// whose terms of the weight gradients it adds up meanwhile. A row is read once. Without a mean, as in RMSNorm, `mean`
/// is not read, and there is no bias: `partial` has C columns.
template <class T, class Residual, bool has_mean>
void norm_backward_by_teams(const ExecSpace& exec, const char* label, const Tensor<Residual, 2>& dx,
                            const Tensor<Residual, 2>& dstream, const Tensor<T, 2>& dy, const Tensor<Residual, 2>& x,
                            const Tensor<State<T>, 1>& mean, const Tensor<State<T>, 1>& rstd,
                            const Tensor<T, 1>& weight, const Tensor<State<T>, 2>& partial) {
  using S = State<T>;
  using Policy = Kokkos::TeamPolicy<ExecSpace, Kokkos::LaunchBounds<max_threads_of_a_row, 1>>;
  constexpr Index pack_size = Pack<int>::size;
  const auto rows = static_cast<Index>(x.extent(0)), channels = static_cast<Index>(x.extent(1));
  const auto teams = static_cast<Index>(partial.extent(0));
  ESPALIER_ASSERT(rows_are_packs(channels, dx.data(), dstream.data(), dy.data(), x.data(), weight.data()),
                  "partial sums are of columns in packs");
  ESPALIER_ASSERT(static_cast<Index>(dstream.extent(0)) == rows && static_cast<Index>(weight.extent(0)) == channels,
                  "partial sums want a dstream, and one group");
  for (const auto stride : {dx.stride(0), dstream.stride(0), dy.stride(0), x.stride(0)})
    ESPALIER_ASSERT(rows < 2 || static_cast<Index>(stride) == channels, "partial sums are of arrays without gaps");
  const Index packs = channels / pack_size;
  const int threads = static_cast<int>(threads_of_a_row(channels));
  const S scale = S(1) / static_cast<S>(channels);
  Kokkos::parallel_for(
      label, Policy(exec, team_count(teams), threads, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index first = team.league_rank();
        const Index pack = team.team_rank();
        const bool has_columns = pack < packs;
        const Pack<T> factors = has_columns ? pack_at(weight.data(), pack) : Pack<T>{};
        S dweight[pack_size] = {}, dbias[pack_size] = {};
        for (Index n = first; n < rows; n += teams) {
          Pack<T> gradients{};
          Pack<Residual> values{}, passing{};
          if (has_columns) {
            gradients = pack_at(&dy(n, 0), pack);
            values = pack_at(&x(n, 0), pack);
            passing = pack_at(&dstream(n, 0), pack);
          }
          const S m = has_mean ? mean(n) : S(0);
          const S r = rstd(n);
          S g[pack_size], xhat[pack_size];
          RowSums<S> own;
          for (int i = 0; i < pack_size; ++i) {
            const S d = static_cast<S>(gradients.values[i]);
            g[i] = d * static_cast<S>(factors.values[i]);
            xhat[i] = (static_cast<S>(values.values[i]) - m) * r;
            dweight[i] += d * xhat[i];
            dbias[i] += d;
            own += RowSums<S>{g[i], g[i] * xhat[i]};
          }
          RowSums<S> sums;
          Kokkos::parallel_reduce(
              Kokkos::TeamThreadRange(team, team.team_size()), [&](const int, RowSums<S>& sum) { sum += own; },
              Kokkos::Sum<RowSums<S>>(sums));
          if (!has_columns)
            continue;
          const S average = has_mean ? scale * sums.gradient : S(0);
          Pack<Residual> result;
          for (int i = 0; i < pack_size; ++i)
            result.values[i] = static_cast<Residual>(static_cast<S>(passing.values[i]) +
                                                     r * (g[i] - average - xhat[i] * scale * sums.projection));
          put_pack(&dx(n, 0), pack, result);
        }
        if (!has_columns)
          return;
        Pack<S> weight_sums, bias_sums;
        for (int i = 0; i < pack_size; ++i) {
          weight_sums.values[i] = dweight[i];
          bias_sums.values[i] = dbias[i];
        }
        put_pack(&partial(first, 0), pack, weight_sums);
        if (has_mean)
          put_pack(&partial(first, channels), pack, bias_sums);
      });
}

}  // namespace espalier::impl
