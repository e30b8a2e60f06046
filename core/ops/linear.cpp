// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear.hpp"

#include <type_traits>

#include "core/ops/activation.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul_cublaslt.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/ops/matmul_onednn.hpp"
#include "core/vector_math.hpp"
#include "core/work.hpp"

namespace espalier {
namespace {

using impl::Epilogue;
using impl::EpilogueKind;

template <class T>
MatmulWork work_of(const Tensor2<T>& c /* (m, n) */, std::size_t k) {
  return {static_cast<Index>(c.extent(0)), static_cast<Index>(c.extent(1)), static_cast<Index>(k)};
}

// The matmul with the epilogue, if the library chosen is cuBLASLt, it can, and it pays; false where nothing was done.
// GELU is left to our own pass where the result has more than 16 bits: cuBLASLt's is good to about 11.
template <class T>
bool fused(const ExecSpace& exec, const Matrix<T>& c, const Matrix<const T>& a, Transpose tb, const Matrix<const T>& b,
           State<T> beta, const Epilogue<T>& epilogue, const std::function<void(T*)>& pass = {}) {
  const MatmulLibrary library = matmul_library();
  const bool has_gelu = epilogue.before_gelu != nullptr;
  if (!is_cublaslt(library) || (has_gelu && !has_master_weights<T>) || c.rows == 0 || c.cols == 0 || a.cols == 0)
    return false;
  if (!impl::matmul_cublaslt<T, T>(exec, library == MatmulLibrary::cublaslt_tf32, c, Transpose::no, a, tb, b,
                                   State<T>(1), beta, epilogue, pass))
    return false;
  count_work(MatmulWork{c.rows, c.cols, a.cols});
  return true;
}

// y(n, :) = bias: a matmul that accumulates into y then adds the bias for free.
template <class T>
void fill_with_bias(const ExecSpace& exec, const Tensor<T, 2>& y /* (N, F) */, const Tensor<T, 1>& bias /* (F) */) {
  const Index width = y.extent(1);
  for_rows(
      exec, "espalier::core::fill_with_bias", y.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) { copy_row<T>(thread, &y(n, 0), bias.data(), width); });
}

}  // namespace

template <class T>
void linear_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias) {
  if (bias.extent(0) == 0)
    return matmul<T>(exec, y, Transpose::no, x, Transpose::yes, weight);
  if constexpr (std::is_same_v<T, bfloat16>)
    if (multiplies_16_bits(scalar_type_of<T>(), matmul_library()) && y.size() > 0 && x.extent(1) > 0) {
      count_work(work_of(y, x.extent(1)));
      return impl::matmul_onednn(Matrix<T>(y), Transpose::no, x, Transpose::yes, weight, 0, bias.data());
    }
  if (fused<T>(exec, y, x, Transpose::yes, weight, 0, {.kind = EpilogueKind::bias, .bias = bias.data()}))
    return;
  fill_with_bias<T>(exec, y, bias);
  matmul<T>(exec, y, Transpose::no, x, Transpose::yes, weight, State<T>(1), State<T>(1));
}

template <class T>
void linear_gelu_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> up, Tensor<T, 2> x, Tensor<T, 2> weight,
                         Tensor<T, 1> bias) {
  const bool has_bias = bias.extent(0) > 0;
  if (has_bias && fused<T>(exec, y, x, Transpose::yes, weight, 0,
                           {.kind = EpilogueKind::bias_gelu, .bias = bias.data(), .before_gelu = up.data()},
                           [&](T*) { activation_forward<T>(exec, "gelu", y, up); }))
    return;
  linear_forward<T>(exec, up, x, weight, bias);
  activation_forward<T>(exec, "gelu", y, up);
}

template <class T>
void linear_add_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias,
                        Tensor<T, 2> residual) {
  const bool has_bias = bias.extent(0) > 0;
  if (has_bias && fused<T>(exec, y, x, Transpose::yes, weight, 1,
                           {.kind = EpilogueKind::bias, .bias = bias.data(), .addend = residual.data()}))
    return;
  matmul<T>(exec, y, Transpose::no, x, Transpose::yes, weight);
  add_bias_and_residual<T>(exec, y, y, bias, residual);
}

template <class T>
void linear_gelu_backward_input(const ExecSpace& exec, Tensor<T, 2> dup, Tensor<T, 2> dy, Tensor<T, 2> weight,
                                Tensor<T, 2> up) {
  if (fused<T>(exec, dup, dy, Transpose::no, weight, 0, {.kind = EpilogueKind::gelu_gradient, .before_gelu = up.data()},
               [&](T*) { activation_backward<T>(exec, "gelu", dup, dup, up); }))
    return;
  matmul<T>(exec, dup, Transpose::no, dy, Transpose::no, weight);
  activation_backward<T>(exec, "gelu", dup, dup, up);
}

template <class T>
void linear_backward_weight(const ExecSpace& exec, Tensor<State<T>, 2> dweight, Tensor<State<T>, 1> dbias,
                            Tensor<T, 2> dy, Tensor<T, 2> x, State<T> beta) {
  if (dbias.extent(0) == 0)
    return matmul<T, State<T>>(exec, dweight, Transpose::yes, dy, Transpose::no, x, State<T>(1), beta);
  const MatmulLibrary library = matmul_library();
  if (is_cublaslt(library) && dweight.size() > 0 && dy.extent(0) > 0 &&
      impl::matmul_cublaslt<T, State<T>>(
          exec, library == MatmulLibrary::cublaslt_tf32, dweight, Transpose::yes, dy, Transpose::no, x, State<T>(1),
          beta, {.kind = EpilogueKind::bias_gradient, .bias_gradient = dbias.data()},
          [&](State<T>* sums) { bias_backward<T>(exec, Tensor<State<T>, 1>(sums, dbias.extent(0)), dy, 0); }))
    return count_work(work_of(dweight, dy.extent(0)));
  matmul<T, State<T>>(exec, dweight, Transpose::yes, dy, Transpose::no, x, State<T>(1), beta);
  bias_backward<T>(exec, dbias, dy, beta);
}

#define ESPALIER_INSTANTIATE(T)                                                                                     \
  template void linear_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 1>);        \
  template void linear_gelu_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>,    \
                                       Tensor<T, 1>);                                                               \
  template void linear_add_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 1>,     \
                                      Tensor<T, 2>);                                                                \
  template void linear_gelu_backward_input<T>(const ExecSpace&, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>,           \
                                              Tensor<T, 2>);                                                        \
  template void linear_backward_weight<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<State<T>, 1>, Tensor<T, 2>, \
                                          Tensor<T, 2>, State<T>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
