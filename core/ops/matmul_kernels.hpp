// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"

// What matmul() goes through, by the library chosen and the type.

namespace espalier::impl {

template <class T, class Out>
void matmul_tiled(const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                  Matrix<const T> b, State<T> alpha, State<T> beta);

/// A matmul of 16-bit types by a library that has none here: block by block, of copies in fp32, in a workspace that is
/// allocated at the first call.
inline constexpr Index widened_edge = 2048;  // a block of C is (edge, edge) or less: an element that is converted takes
inline constexpr Index widened_depth = 1024;  // part in 2 * edge FLOPs, so that conversions cost a few per cent
template <class T, class Out>
void matmul_widened(MatmulLibrary library, const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a,
                    Transpose tb, Matrix<const T> b, float alpha, float beta);
void release_widened_workspace();

/// c = alpha a b^T + beta c of few rows of `a`, on hosts. Reads `b` once, where a library first copies it.
template <class T>
void matmul_few_rows(const ExecSpace& exec, Matrix<T> c /* (M, N) */, Matrix<const T> a /* (M, K) */,
                     Matrix<const T> b /* (N, K) */, T alpha, T beta);

/// One matmul through a GEMM library; false where the library is absent or has no kernel for T.
template <class T>
bool matmul_by_library(MatmulLibrary library, const ExecSpace& exec, Matrix<T> c, Transpose ta, Matrix<const T> a,
                       Transpose tb, Matrix<const T> b, T alpha, T beta);

}  // namespace espalier::impl
