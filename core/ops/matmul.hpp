// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "core/tensor.hpp"

namespace espalier {

enum class Transpose : bool { no, yes };

/// Row-major matrix window: element (i, j) at data[i * stride + j]. Owns nothing.
template <class T>
struct Matrix {
  T* data;
  Index rows;
  Index cols;
  Index stride;

  Matrix(T* data_, Index rows_, Index cols_, Index stride_) : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  Matrix(const Tensor<std::remove_const_t<T>, 2>& t)  // NOLINT(google-explicit-constructor): a tensor is a matrix
      : data(t.data()), rows(t.extent(0)), cols(t.extent(1)), stride(t.stride(0)) {}
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<const U, T>)
      Matrix(const Matrix<U>& m)  // NOLINT(google-explicit-constructor): reading needs less
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}
};

/// On hosts, if `a` has at most so many rows, each row of a b^T (fp32, fp64) has the bits that it has alone.
inline constexpr Index few_rows = 16;

/// c = alpha * op(a) * op(b) + beta * c, with op(x) = x or its transpose; c (M, N), op(a) (M, K), op(b) (K, N).
/// With beta = 0 the old content of c is not read. Matmuls of 16-bit types accumulate in fp32; their sum is rounded
/// once, or not at all where Out, the type of c, is the state type: gradients of weights.
template <class T, class Out = T>
void matmul(const ExecSpace& exec, std::type_identity_t<Matrix<Out>> c, Transpose transpose_a,
            std::type_identity_t<Matrix<const T>> a, Transpose transpose_b, std::type_identity_t<Matrix<const T>> b,
            State<T> alpha = 1, State<T> beta = 0);

}  // namespace espalier
