// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/dropout.hpp"

namespace espalier {
namespace {

// Of a row: what a stack has room for.
constexpr Index piece = 512;

}  // namespace

template <class T>
void apply_dropout(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, const Dropout& dropout) {
  const Index width = y.extent(1);
  for_rows(
      exec, "espalier::core::apply_dropout", y.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        if (y.data() != x.data())
          copy_row<T>(thread, &y(n, 0), &x(n, 0), width);
        dropout.apply(thread, &y(n, 0), n, 0, width);
      });
}

template <class T, class Residual>
void add_dropped(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> product, Tensor<T, 1> bias,
                 Tensor<Residual, 2> residual, const Dropout& dropout) {
  using S = State<T>;
  const Index width = y.extent(1);
  const bool has_bias = bias.extent(0) > 0;
  for_rows(
      exec, "espalier::core::add_dropped", y.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const b = bias.data();
        if constexpr (exec_is_host) {
          S sums[piece];
          for (Index begin = 0; begin < width; begin += piece) {
            const Index count = smaller(piece, width - begin);
            const T* const p = &product(n, begin);
            const Residual* const r = &residual(n, begin);
            Residual* const out = &y(n, begin);
            row_for(thread, count, [&](const Index c) { sums[c] = static_cast<S>(p[c]); });
            if (has_bias)
              row_for(thread, count, [&](const Index c) { sums[c] += static_cast<S>(b[begin + c]); });
            dropout.apply(thread, sums, n, begin, count);
            row_for(thread, count,
                    [&](const Index c) { out[c] = static_cast<Residual>(sums[c] + static_cast<S>(r[c])); });
          }
        } else {
          row_for(thread, width, [&](const Index c) {
            const S sum = static_cast<S>(product(n, c)) + (has_bias ? static_cast<S>(b[c]) : S(0));
            y(n, c) = static_cast<Residual>(dropout.factor<S>(n, c) * sum + static_cast<S>(residual(n, c)));
          });
        }
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
