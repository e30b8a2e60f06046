// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/layernorm.hpp"

#include "core/ops/column_sums.hpp"
#include "core/ops/norm_by_teams.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

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

}  // namespace

Index layernorm_partial_rows(Index rows, Index channels) { return impl::norm_partial_rows(rows, channels); }

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
    impl::norm_backward_by_teams<T, Residual, true>(exec, "espalier::core::layernorm_backward_input", dx, dstream, dy,
                                                    x, mean, rstd, weight, partial);
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
                               Tensor<State<T>, 1> rstd, State<T> beta, Tensor<State<T>, 2> partial) {
  const auto channels = static_cast<Index>(dweight.extent(0));
  if (partial.extent(0) > 0)
    return add_weight_gradients<State<T>>(exec, partial.extent(0), rows_are_packs(channels, partial.data()),
                                          impl::PartialTerms<State<T>, 2>{partial, channels}, dweight, dbias, beta);
  add_weight_gradients<State<T>>(exec, x.extent(0), rows_are_packs(x.extent(1), dy.data(), x.data()),
                                 WeightTerms<T, Residual>{dy, x, mean, rstd}, dweight, dbias, beta);
}

#define ESPALIER_INSTANTIATE(T, R)                                                                                    \
  template void layernorm_forward<T, R>(const ExecSpace&, Tensor<T, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>,     \
                                        Tensor<R, 2>, Tensor<T, 1>, Tensor<T, 1>, double);                            \
  template void layernorm_backward_input<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<R, 2>, Tensor<T, 2>,            \
                                               Tensor<R, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>, Tensor<T, 1>,  \
                                               Tensor<State<T>, 2>);                                                  \
  template void layernorm_backward_weight<T, R>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<State<T>, 1>,           \
                                                Tensor<T, 2>, Tensor<R, 2>, Tensor<State<T>, 1>, Tensor<State<T>, 1>, \
                                                State<T>, Tensor<State<T>, 2>);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
