// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <vector>

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
      : data(t.data()), rows(t.extent(0)), cols(t.extent(1)), stride(t.extent(1)) {}
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<const U, T>)
      Matrix(const Matrix<U>& m)  // NOLINT(google-explicit-constructor): reading needs less
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}
};

/// c = alpha * op(a) * op(b) + beta * c, with op(x) = x or its transpose; c (M, N), op(a) (M, K), op(b) (K, N).
/// With beta = 0 the old content of c is not read. Products of 16-bit types accumulate in fp32; their sum is rounded
/// once, or not at all where Out, the type of c, is the state type: gradients of weights.
template <class T, class Out = T>
void matmul(const ExecSpace& exec, std::type_identity_t<Matrix<Out>> c, Transpose transpose_a,
            std::type_identity_t<Matrix<const T>> a, Transpose transpose_b, std::type_identity_t<Matrix<const T>> b,
            State<T> alpha = 1, State<T> beta = 0);

/// The libraries a product can go through. `tiled` is our own kernel and runs wherever Kokkos does.
enum class MatmulLibrary { tiled, kokkos_kernels, openblas, onednn };
const char* to_string(MatmulLibrary library);

/// Those this build has, portable first.
std::vector<MatmulLibrary> matmul_libraries();

/// The library that matmul() uses from now on. A choice of the process, made once before training: bits depend on it.
/// Attention's tiles ask for it only in 16 bits (tile_matmul.hpp).
MatmulLibrary matmul_library();
void set_matmul_library(MatmulLibrary library);

/// Which library the name means. @throws Error (usage) naming those present.
MatmulLibrary parse_matmul_library(const std::string& name);

/// Multiplies square random matrices with every library present.
/// @returns the best rate of each in FLOP/s, in the order of matmul_libraries(); 0 where `tiled` takes too long.
template <class T>
std::vector<double> measure_matmul_rates(const ExecSpace& exec, Index size, int repetitions);

/// The library to prefer here. Follows from the CPU, the libraries present and T alone, not from a measurement: the
/// bits of a run must not depend on what else the machine is doing when it starts.
template <class T>
MatmulLibrary default_matmul_library();

/// Whether the library multiplies 16-bit T as they are, on units of this CPU. Else it multiplies copies in fp32.
template <class T>
bool multiplies_16_bits(MatmulLibrary library);

/// Bytes that matmul<T> through this library holds on to from its first call; one workspace for the process.
template <class T>
std::size_t matmul_workspace_bytes(MatmulLibrary library);

/// Gives it back, until the next product needs one.
void release_matmul_workspace();

/// One line about the libraries and the kernels they chose for this CPU.
std::string describe_matmul_libraries();

namespace impl {

template <class T, class Out>
void matmul_tiled(const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                  Matrix<const T> b, State<T> alpha, State<T> beta);

/// A product of 16-bit types by a library that has none here: block by block, of copies in fp32, in a workspace that is
/// allocated at the first call.
inline constexpr Index widened_edge = 2048;  // a block of C is (edge, edge) or less: an element that is converted takes
inline constexpr Index widened_depth = 1024;  // part in 2 * edge FLOPs, so that conversions cost a few per cent
template <class T, class Out>
void matmul_widened(MatmulLibrary library, const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a,
                    Transpose tb, Matrix<const T> b, float alpha, float beta);
void release_widened_workspace();

/// One product through a GEMM library; false where the library is absent or has no kernel for T.
template <class T>
bool matmul_by_library(MatmulLibrary library, const ExecSpace& exec, Matrix<T> c, Transpose ta, Matrix<const T> a,
                       Transpose tb, Matrix<const T> b, T alpha, T beta);

}  // namespace impl
}  // namespace espalier
