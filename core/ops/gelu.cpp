// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gelu.hpp"

#include "core/vector_math.hpp"

namespace espalier {
namespace {

// sigmoid(2u) and d(2u)/dx.
template <class S>
struct Gate {
  S sigmoid;
  S slope;
};

template <class S>
KOKKOS_INLINE_FUNCTION Gate<S> gate(S x) {
  const S twice_root = S(1.5957691216057308);  // 2 sqrt(2/pi)
  const S cubic = S(0.044715);
  const S exponent = twice_root * x * (S(1) + cubic * x * x);
  return {S(1) / (S(1) + vector_exp(-exponent)), twice_root * (S(1) + S(3) * cubic * x * x)};
}

}  // namespace

template <class T>
void gelu_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x) {
  using S = State<T>;
  const Index width = x.extent(1);
  for_rows(
      exec, "espalier::core::gelu_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const in = &x(n, 0);
        T* const out = &y(n, 0);
        const auto gelu = [](const T number) {
          const S value = static_cast<S>(number);
          return static_cast<T>(value * gate(value).sigmoid);
        };
        map_row(thread, width, out, gelu, in);
      });
}

template <class T>
void gelu_backward(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<T, 2> dy, Tensor<T, 2> x) {
  using S = State<T>;
  const Index width = x.extent(1);
  for_rows(
      exec, "espalier::core::gelu_backward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const in = &x(n, 0);
        const T* const g = &dy(n, 0);
        T* const out = &dx(n, 0);
        const auto gradient = [](const T number, const T d) {
          const S value = static_cast<S>(number);
          const Gate<S> at = gate(value);
          const S derivative = at.sigmoid * (S(1) + value * (S(1) - at.sigmoid) * at.slope);
          return static_cast<T>(static_cast<S>(d) * derivative);
        };
        map_row(thread, width, out, gradient, in, g);
      });
}

#define ESPALIER_INSTANTIATE(T)                                                \
  template void gelu_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>); \
  template void gelu_backward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
