// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/dropout.hpp"

namespace espalier {
namespace {

// Row n of add_dropped(). bias may be null.
template <class T, class Residual>
KOKKOS_INLINE_FUNCTION void add_dropped_row(const TeamThread& thread, Residual* y, const T* product, const T* bias,
                                            const Residual* residual, Index n, Index width, const Dropout& dropout) {
  using S = State<T>;
  if constexpr (exec_is_host) {
    constexpr Index piece = 512;
    S sums[piece];
    for (Index begin = 0; begin < width; begin += piece) {
      const Index count = smaller(piece, width - begin);
      row_for(thread, count, [&](const Index c) { sums[c] = static_cast<S>(product[begin + c]); });
      if (bias != nullptr)
        row_for(thread, count, [&](const Index c) { sums[c] += static_cast<S>(bias[begin + c]); });
      dropout.apply(thread, sums, sums, n, begin, count);
      row_for(thread, count, [&](const Index c) {
        y[begin + c] = static_cast<Residual>(sums[c] + static_cast<S>(residual[begin + c]));
      });
    }
  } else {
    row_for(thread, width, [&](const Index c) {
      const S sum = static_cast<S>(product[c]) + (bias != nullptr ? static_cast<S>(bias[c]) : S(0));
      y[c] = static_cast<Residual>(dropout.factor<S>(n, c) * sum + static_cast<S>(residual[c]));
    });
  }
}

}  // namespace

template <class T>
void apply_dropout(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, const Dropout& dropout) {
  const Index width = y.extent(1);
  for_rows(
      exec, "espalier::core::apply_dropout", y.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        dropout.apply(thread, &y(n, 0), &x(n, 0), n, 0, width);
      });
}

template <class T, class Residual>
void add_dropped(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> product, Tensor<T, 1> bias,
                 Tensor<Residual, 2> residual, const Dropout& dropout) {
  const Index width = y.extent(1);
  for_rows(
      exec, "espalier::core::add_dropped", y.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        add_dropped_row<T, Residual>(thread, &y(n, 0), &product(n, 0), bias.extent(0) > 0 ? bias.data() : nullptr,
                                     &residual(n, 0), n, width, dropout);
      });
}

#define ESPALIER_INSTANTIATE(T) \
  template void apply_dropout<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, const Dropout&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R)                                                                          \
  template void add_dropped<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<T, 2>, Tensor<T, 1>, Tensor<R, 2>, \
                                  const Dropout&);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
