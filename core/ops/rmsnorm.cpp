// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rmsnorm.hpp"

#include "core/ops/column_sums.hpp"
#include "core/ops/norm_by_teams.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

// Of which the gradient of weight is the sum over all groups of all rows: dy * xhat.
template <class T, class Residual>
struct GroupTerms {
  using S = State<T>;
  Tensor<T, 2> dy;        // (N, G*C)
  Tensor<Residual, 2> x;  // (N, G*C)
  Tensor<S, 1> rstd;      // (N*G)
  Index groups;           // G
  Index channels;         // C

  template <int size>
  KOKKOS_INLINE_FUNCTION void operator()(S (&terms)[1][size], Index group, Index c) const {
    const Index n = groups == 1 ? group : group / groups;
    const Index column = (group - n * groups) * channels + c;
    const auto gradients = impl::pack_at<size>(&dy(n, column), 0);
    const auto values = impl::pack_at<size>(&x(n, column), 0);
    for (int i = 0; i < size; ++i)
      terms[0][i] = static_cast<S>(gradients.values[i]) * static_cast<S>(values.values[i]) * rstd(group);
  }
};

template <class S, class Terms>
void add_weight_gradient(const ExecSpace& exec, Index rows, bool packed, const Terms& terms,
                         const Tensor<S, 1>& dweight, S beta) {
  column_sums<1, S>(
      exec, "espalier::core::rmsnorm_backward_weight", rows, static_cast<Index>(dweight.extent(0)), packed, terms,
      KOKKOS_LAMBDA(const Index c, const S* sums) { dweight(c) = sums[0] + (beta == 0 ? 0 : dweight(c)); });
}

}  // namespace

Index rmsnorm_partial_rows(Index rows, Index channels) { return impl::norm_partial_rows(rows, channels); }

template <class T, class Residual>
void rmsnorm_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<State<T>, 1> rstd, Tensor<Residual, 2> x,
                     Tensor<T, 1> weight, double eps) {
  using S = State<T>;
  const auto channels = static_cast<Index>(weight.extent(0));
  const Index groups = static_cast<Index>(x.extent(1)) / channels;
  const S epsilon = static_cast<S>(eps);
  for_rows(
      exec, "espalier::core::rmsnorm_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const w = weight.data();
        const S scale = S(1) / static_cast<S>(channels);
        for (Index g = 0; g < groups; ++g) {
          const Residual* const in = &x(n, g * channels);
          T* const out = &y(n, g * channels);
          const auto square = [](const Residual value) { return static_cast<S>(value) * static_cast<S>(value); };
          const S r = S(1) / compat::sqrt(scale * sum_of_row<S>(thread, channels, square, in) + epsilon);
          const auto normalised = [=](const Residual value, const T factor) {
            return static_cast<T>(static_cast<S>(value) * r * static_cast<S>(factor));
          };
          map_row(thread, channels, out, normalised, in, w);
          Kokkos::single(Kokkos::PerThread(thread.team), [&]() { rstd(n * groups + g) = r; });
        }
      });
}

template <class T, class Residual>
void rmsnorm_backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx, Tensor<Residual, 2> dstream, Tensor<T, 2> dy,
                            Tensor<Residual, 2> x, Tensor<State<T>, 1> rstd, Tensor<T, 1> weight,
                            Tensor<State<T>, 2> partial) {
  using S = State<T>;
  if (partial.extent(0) > 0) {
    impl::norm_backward_by_teams<T, Residual, false>(exec, "espalier::core::rmsnorm_backward_input", dx, dstream, dy, x,
                                                     {}, rstd, weight, partial);
    return;
  }
  const auto channels = static_cast<Index>(weight.extent(0));
  const Index groups = static_cast<Index>(x.extent(1)) / channels;
  const bool has_stream = dstream.extent(0) > 0;
  // dx = rstd * (g - xhat * average(g * xhat)) with g = dy * weight
  for_rows(
      exec, "espalier::core::rmsnorm_backward_input", x.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const w = weight.data();
        const S scale = S(1) / static_cast<S>(channels);
        for (Index g = 0; g < groups; ++g) {
          const Residual* const in = &x(n, g * channels);
          const T* const d = &dy(n, g * channels);
          Residual* const out = &dx(n, g * channels);
          const S r = rstd(n * groups + g);
          const auto projected = [=](const T gradient, const T factor, const Residual value) {
            return static_cast<S>(gradient) * static_cast<S>(factor) * static_cast<S>(value);
          };
          const S projection = scale * r * r * sum_of_row<S>(thread, channels, projected, d, w, in);
          const auto input_gradient = [=](const T gradient, const T factor, const Residual value) {
            return r * (static_cast<S>(gradient) * static_cast<S>(factor) - static_cast<S>(value) * projection);
          };
          const auto alone = [=](const T gradient, const T factor, const Residual value) {
            return static_cast<Residual>(input_gradient(gradient, factor, value));
          };
          const auto sum = [=](const Residual passed, const T gradient, const T factor, const Residual value) {
            return static_cast<Residual>(static_cast<S>(passed) + input_gradient(gradient, factor, value));
          };
          if (has_stream)
            map_row(thread, channels, out, sum, &dstream(n, g * channels), d, w, in);
          else
            map_row(thread, channels, out, alone, d, w, in);
        }
      });
}

template <class T, class Residual>
void rmsnorm_backward_weight(const ExecSpace& exec, Tensor<State<T>, 1> dweight, Tensor<T, 2> dy, Tensor<Residual, 2> x,
                             Tensor<State<T>, 1> rstd, State<T> beta, Tensor<State<T>, 2> partial) {
  const auto channels = static_cast<Index>(dweight.extent(0));
  if (partial.extent(0) > 0)
    return add_weight_gradient<State<T>>(exec, partial.extent(0), rows_are_packs(channels, partial.data()),
                                         impl::PartialTerms<State<T>, 1>{partial, channels}, dweight, beta);
  const Index groups = static_cast<Index>(x.extent(1)) / channels;
  add_weight_gradient<State<T>>(exec, static_cast<Index>(x.extent(0)) * groups,
                                columns_are_packs<T>(channels, dy) && columns_are_packs<Residual>(channels, x),
                                GroupTerms<T, Residual>{dy, x, rstd, groups, channels}, dweight, beta);
}

#define ESPALIER_INSTANTIATE(T, R)                                                                                     \
  template void rmsnorm_forward<T, R>(const ExecSpace&, Tensor<T, 2>, Tensor<State<T>, 1>, Tensor<R, 2>, Tensor<T, 1>, \
                                      double);                                                                         \
  template void rmsnorm_backward_input<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<R, 2>, Tensor<T, 2>, Tensor<R, 2>, \
                                             Tensor<State<T>, 1>, Tensor<T, 1>, Tensor<State<T>, 2>);                  \
  template void rmsnorm_backward_weight<T, R>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>, Tensor<R, 2>,       \
                                              Tensor<State<T>, 1>, State<T>, Tensor<State<T>, 2>);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
