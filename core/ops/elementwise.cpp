// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.hpp"

#include "core/ops/column_sums.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

template <class T>
struct BiasTerms {
  Tensor<T, 2> dy;  // (N, F)

  template <int size>
  KOKKOS_INLINE_FUNCTION void operator()(State<T> (&terms)[1][size], Index n, Index c) const {
    const auto gradients = impl::pack_at<size>(&dy(n, c), 0);
    for (int i = 0; i < size; ++i)
      terms[0][i] = static_cast<State<T>>(gradients.values[i]);
  }
};

}  // namespace

template <class T, class Residual>
void add_bias_and_residual(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> product, Tensor<T, 1> bias,
                           Tensor<Residual, 2> residual) {
  using S = State<T>;
  const Index width = y.extent(1);
  if (bias.extent(0) == 0)
    return for_rows(
        exec, "espalier::core::add_residual", y.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
          const auto sum = [](const T value, const Residual old) {
            return static_cast<Residual>(static_cast<S>(value) + static_cast<S>(old));
          };
          map_row(thread, width, &y(n, 0), sum, &product(n, 0), &residual(n, 0));
        });
  for_rows(
      exec, "espalier::core::add_bias_and_residual", y.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        Residual* const out = &y(n, 0);
        const T* const p = &product(n, 0);
        const Residual* const r = &residual(n, 0);
        const T* const b = bias.data();
        const auto sum = [](const T value, const Residual old, const T add) {
          return static_cast<Residual>(static_cast<S>(value) + (static_cast<S>(old) + static_cast<S>(add)));
        };
        map_row(thread, width, out, sum, p, r, b);
      });
}

template <class T>
void bias_backward(const ExecSpace& exec, Tensor<State<T>, 1> dbias, Tensor<T, 2> dy, State<T> beta) {
  using S = State<T>;
  column_sums<1, S>(
      exec, "espalier::core::bias_backward", dy.extent(0), dy.extent(1), columns_are_packs<T>(dy.extent(1), dy),
      BiasTerms<T>{dy},
      KOKKOS_LAMBDA(const Index c, const S* sums) { dbias(c) = sums[0] + (beta == 0 ? 0 : dbias(c)); });
}

template <class To, class From>
void convert(const ExecSpace& exec, Tensor<To, 1> to, Tensor<From, 1> from) {
  constexpr Index block = 4096;  // its loop vectorises
  const auto count = static_cast<Index>(to.extent(0));
  To* const out = to.data();
  const From* const in = from.data();
  for_rows(
      exec, "espalier::core::convert", (count + block - 1) / block,
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const Index first = n * block;
        map_row(
            thread, smaller(block, count - first), out + first, [](const From value) { return static_cast<To>(value); },
            in + first);
      });
}

void triad(const ExecSpace& exec, Tensor<float, 2> a, Tensor<float, 2> b, Tensor<float, 2> c, float s) {
  const Index width = a.extent(1);
  for_rows(
      exec, "espalier::core::triad", a.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const auto sum = [s](const float left, const float right) { return left + s * right; };
        map_row(thread, width, &a(n, 0), sum, &b(n, 0), &c(n, 0));
      });
}

#define ESPALIER_INSTANTIATE(T)                                                      \
  template void convert<T, float>(const ExecSpace&, Tensor<T, 1>, Tensor<float, 1>); \
  template void convert<float, T>(const ExecSpace&, Tensor<float, 1>, Tensor<T, 1>);
ESPALIER_FOR_16_BIT_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T) \
  template void bias_backward<T>(const ExecSpace&, Tensor<State<T>, 1>, Tensor<T, 2>, State<T>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R) \
  template void add_bias_and_residual<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<T, 2>, Tensor<T, 1>, Tensor<R, 2>);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
