// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear.hpp"

#include <type_traits>

#include "core/ops/elementwise.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/ops/matmul_onednn.hpp"

namespace espalier {

template <class T>
void linear_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias) {
  if constexpr (std::is_same_v<T, bfloat16>)
    if (multiplies_16_bits<T>(matmul_library()) && y.size() > 0 && x.extent(1) > 0)
      return impl::matmul_onednn<T>(y, Transpose::no, x, Transpose::yes, weight, 0, bias.data());
  fill_with_bias<T>(exec, y, bias);
  matmul<T>(exec, y, Transpose::no, x, Transpose::yes, weight, State<T>(1), State<T>(1));
}

#define ESPALIER_INSTANTIATE(T) \
  template void linear_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 1>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
