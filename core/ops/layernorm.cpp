// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/layernorm.hpp"

#include <algorithm>

#include "core/ops/column_sums.hpp"
#include "core/vector_math.hpp"

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

namespace espalier {
namespace {

using impl::RowSums;

constexpr Index pack_size = Pack<int>::size;
constexpr Index most_threads_of_a_row = 512;

// One for each pack, in whole warps.
constexpr Index threads_of_a_row(Index channels) {
  constexpr Index warp = 32;
  return (channels / pack_size + warp - 1) / warp * warp;
}

// Of which the gradients of weight and bias are the sums over all rows: dy * xhat and dy.
template <class T, class Residual>
struct WeightTerms {
  using S = State<T>;
  Tensor<T, 2> dy;        // (N, C)
  Tensor<Residual, 2> x;  // (N, C)
  Tensor<S, 1> mean;      // (N)
  Tensor<S, 1> rstd;      // (N)

  template <int size>
  KOKKOS_INLINE_FUNCTION void operator()(S (&terms)[2][size], Index n, Index c) const {
    const auto gradients = impl::pack_at<size>(&dy(n, c), 0);
    const auto values = impl::pack_at<size>(&x(n, c), 0);
    for (int i = 0; i < size; ++i) {
      const S g = static_cast<S>(gradients.values[i]);
      terms[0][i] = g * (static_cast<S>(values.values[i]) - mean(n)) * rstd(n);
      terms[1][i] = g;
    }
  }
};

// The same of partial sums.
template <class S>
struct PartialTerms {
  Tensor<S, 2> partial;  // (P, 2C)
  Index channels;        // C

  template <int size>
  KOKKOS_INLINE_FUNCTION void operator()(S (&terms)[2][size], Index p, Index c) const {
    for (int k = 0; k < 2; ++k) {
      const auto values = impl::pack_at<size>(&partial(p, k * channels + c), 0);
      for (int i = 0; i < size; ++i)
        terms[k][i] = values.values[i];
    }
  }
};

template <class S, class Terms>
void add_weight_gradients(const ExecSpace& exec, Index rows, bool packed, const Terms& terms,
                          const Tensor<S, 1>& dweight, const Tensor<S, 1>& dbias, S beta) {
  column_sums<2, S>(
      exec, "espalier::core::layernorm_backward_weight", rows, static_cast<Index>(dweight.extent(0)), packed, terms,
      KOKKOS_LAMBDA(const Index c, const S* sums) {
        dweight(c) = sums[0] + (beta == 0 ? 0 : dweight(c));
        dbias(c) = sums[1] + (beta == 0 ? 0 : dbias(c));
      });
}

// On GPUs: team p takes rows p, p + P, ... one after the other, each of its threads the same pack of columns of all of
// them, whose terms of the weight gradients it adds up meanwhile. A row is read once.
template <class T, class Residual>
void backward_input_by_teams(const ExecSpace& exec, const Tensor<Residual, 2>& dx, const Tensor<Residual, 2>& dstream,
                             const Tensor<T, 2>& dy, const Tensor<Residual, 2>& x, const Tensor<State<T>, 1>& mean,
                             const Tensor<State<T>, 1>& rstd, const Tensor<T, 1>& weight,
                             const Tensor<State<T>, 2>& partial) {
  using S = State<T>;
  using Policy = Kokkos::TeamPolicy<ExecSpace, Kokkos::LaunchBounds<most_threads_of_a_row, 1>>;
  const auto rows = static_cast<Index>(x.extent(0)), channels = static_cast<Index>(x.extent(1));
  const auto teams = static_cast<Index>(partial.extent(0));
  ESPALIER_ASSERT(rows_are_packs(channels, dx.data(), dstream.data(), dy.data(), x.data(), weight.data()),
                  "partial sums are of columns in packs");
  const Index packs = channels / pack_size;
  const int threads = static_cast<int>(threads_of_a_row(channels));
  const S scale = S(1) / static_cast<S>(channels);
  Kokkos::parallel_for(
      "espalier::core::layernorm_backward_input", Policy(exec, team_count(teams), threads, 1),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index first = team.league_rank();
        const Index pack = team.team_rank();
        const bool has_columns = pack < packs;
        const Pack<T> factors = has_columns ? impl::pack_at(weight.data(), pack) : Pack<T>{};
        S dweight[pack_size] = {}, dbias[pack_size] = {};
        for (Index n = first; n < rows; n += teams) {
          Pack<T> gradients{};
          Pack<Residual> values{}, passing{};
          if (has_columns) {
            gradients = impl::pack_at(&dy(n, 0), pack);
            values = impl::pack_at(&x(n, 0), pack);
            passing = impl::pack_at(&dstream(n, 0), pack);
          }
          const S m = mean(n);
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
          Pack<Residual> result;
          for (int i = 0; i < pack_size; ++i)
            result.values[i] =
                static_cast<Residual>(static_cast<S>(passing.values[i]) +
                                      r * (g[i] - scale * sums.gradient - xhat[i] * scale * sums.projection));
          impl::put_pack(&dx(n, 0), pack, result);
        }
        if (!has_columns)
          return;
        Pack<S> weight_sums, bias_sums;
        for (int i = 0; i < pack_size; ++i) {
          weight_sums.values[i] = dweight[i];
          bias_sums.values[i] = dbias[i];
        }
        impl::put_pack(&partial(first, 0), pack, weight_sums);
        impl::put_pack(&partial(first, channels), pack, bias_sums);
      });
}

}  // namespace

// As many teams as an A100 has room for at once, by the registers that they take; one more would wait for a second
// round.
Index layernorm_partial_rows(Index rows, Index channels) {
  constexpr Index multiprocessors = 108, threads_of_each = 768;
  if (exec_is_host || channels % pack_size != 0 || channels > pack_size * most_threads_of_a_row)
    return 0;
  return smaller(rows, multiprocessors * std::max<Index>(1, threads_of_each / threads_of_a_row(channels)));
}

template <class T, class Residual>
void layernorm_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<State<T>, 1> mean, Tensor<State<T>, 1> rstd,
                       Tensor<Residual, 2> x, Tensor<T, 1> weight, Tensor<T, 1> bias, double eps) {
  using S = State<T>;
  const Index channels = x.extent(1);
  const S epsilon = static_cast<S>(eps);
  for_rows(
      exec, "espalier::core::layernorm_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const Residual* const row = &x(n, 0);
        T* const out = &y(n, 0);
        const T* const w = weight.data();
        const T* const b = bias.data();
        const S scale = S(1) / static_cast<S>(channels);
        const S m = scale * sum_of_row<S>(
                                thread, channels, [](const Residual value) { return static_cast<S>(value); }, row);
        const auto square = [=](const Residual value) {
          const S centred = static_cast<S>(value) - m;
          return centred * centred;
        };
        const S variance = scale * sum_of_row<S>(thread, channels, square, row);
        const S r = S(1) / compat::sqrt(variance + epsilon);
        const auto normalised = [=](const Residual value, const T factor, const T add) {
          return static_cast<T>((static_cast<S>(value) - m) * r * static_cast<S>(factor) + static_cast<S>(add));
        };
        map_row(thread, channels, out, normalised, row, w, b);
        Kokkos::single(Kokkos::PerThread(thread.team), [&]() {
          mean(n) = m;
          rstd(n) = r;
        });
      });
}

template <class T, class Residual>
void layernorm_backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx, Tensor<Residual, 2> dstream,
                              Tensor<T, 2> dy, Tensor<Residual, 2> x, Tensor<State<T>, 1> mean,
                              Tensor<State<T>, 1> rstd, Tensor<T, 1> weight, Tensor<State<T>, 2> partial) {
  using S = State<T>;
  if (partial.extent(0) > 0) {
    backward_input_by_teams<T, Residual>(exec, dx, dstream, dy, x, mean, rstd, weight, partial);
    return;
  }
  const Index channels = x.extent(1);
  // dx = rstd * (g - average(g) - xhat * average(g * xhat)) with g = dy * weight
  for_rows(
      exec, "espalier::core::layernorm_backward_input", x.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const Residual* const in = &x(n, 0);
        const T* const g = &dy(n, 0);
        const T* const w = weight.data();
        const Residual* const passing = &dstream(n, 0);
        Residual* const out = &dx(n, 0);
        const S m = mean(n);
        const S r = rstd(n);
        const S scale = S(1) / static_cast<S>(channels);
        const auto gradient = [](const T d, const T factor) { return static_cast<S>(d) * static_cast<S>(factor); };
        const auto xhat = [=](const Residual value) { return (static_cast<S>(value) - m) * r; };
        const S average = scale * sum_of_row<S>(thread, channels, gradient, g, w);
        const auto projected = [=](const T d, const T factor, const Residual value) {
          return gradient(d, factor) * xhat(value);
        };
        const S projection = scale * sum_of_row<S>(thread, channels, projected, g, w, in);
        const auto sum = [=](const Residual passed, const T d, const T factor, const Residual value) {
          return static_cast<Residual>(static_cast<S>(passed) +
                                       r * (gradient(d, factor) - average - xhat(value) * projection));
        };
        map_row(thread, channels, out, sum, passing, g, w, in);
      });
}

template <class T, class Residual>
void layernorm_backward_weight(const ExecSpace& exec, Tensor<State<T>, 1> dweight, Tensor<State<T>, 1> dbias,
                               Tensor<T, 2> dy, Tensor<Residual, 2> x, Tensor<State<T>, 1> mean,
                               Tensor<State<T>, 1> rstd, State<T> beta) {
  add_weight_gradients<State<T>>(exec, x.extent(0), rows_are_packs(x.extent(1), dy.data(), x.data()),
                                 WeightTerms<T, Residual>{dy, x, mean, rstd}, dweight, dbias, beta);
}

template <class S>
void layernorm_backward_weight(const ExecSpace& exec, Tensor<S, 1> dweight, Tensor<S, 1> dbias, Tensor<S, 2> partial,
                               S beta) {
  const auto channels = static_cast<Index>(dweight.extent(0));
  add_weight_gradients<S>(exec, partial.extent(0), rows_are_packs(channels, partial.data()),
                          PartialTerms<S>{partial, channels}, dweight, dbias, beta);
}

#define ESPALIER_INSTANTIATE(T, R)                                                                                    \
  template void layernorm_forward<T, R>(const ExecSpace&, Tensor<T, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>,     \
                                        Tensor<R, 2>, Tensor<T, 1>, Tensor<T, 1>, double);                            \
  template void layernorm_backward_input<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<R, 2>, Tensor<T, 2>,            \
                                               Tensor<R, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>, Tensor<T, 1>,  \
                                               Tensor<State<T>, 2>);                                                  \
  template void layernorm_backward_weight<T, R>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<State<T>, 1>,           \
                                                Tensor<T, 2>, Tensor<R, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>, \
                                                State<T>);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

template void layernorm_backward_weight<float>(const ExecSpace&, Tensor<float, 1>, Tensor<float, 1>, Tensor<float, 2>,
                                               float);
template void layernorm_backward_weight<double>(const ExecSpace&, Tensor<double, 1>, Tensor<double, 1>,
                                                Tensor<double, 2>, double);

}  // namespace espalier
