// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"

namespace espalier::impl {

/// What cuBLASLt does to the result c (M, N) of a matmul on its way to memory, so that no other pass over c is needed.
enum class EpilogueKind {
  none,
  bias,           ///< c += bias
  bias_gelu,      ///< before_gelu = c + bias, c = gelu(before_gelu)
  gelu_gradient,  ///< c *= gelu'(before_gelu)
  bias_gradient   ///< bias_gradient = row sums of op(a) + beta bias_gradient, beta 0 or 1
};

template <class Out>
struct Epilogue {
  EpilogueKind kind = EpilogueKind::none;
  const Out* bias = nullptr;     ///< (N)
  Out* before_gelu = nullptr;    ///< (M, N) with the stride of c; written by bias_gelu, read by gelu_gradient
  Out* bias_gradient = nullptr;  ///< (M); where Out is the state type
  const Out* addend = nullptr;   ///< (M, N) with the stride of c: what beta scales; nullptr: c itself
};

/// Memory that is held for matmuls to work in, for each instance of the execution space.
inline constexpr std::size_t cublaslt_workspace_bytes = (std::size_t{33} << 20) + 256;

/// c = alpha * op(a) * op(b) + beta * c, on the stream of `exec`. At the first matmul of a shape the algorithms that
/// cuBLASLt proposes are timed and the fastest is kept for the process; while a graph is captured its first proposal is
/// taken untimed. So call every matmul once before capturing.
/// @param tf32 rounds fp32 operands to 10 bits of fraction, for the tensor cores.
/// @param pass what the epilogue saves: enqueues it on `exec`, any number of times before the matmul; the bias gradient
/// goes to its argument. Where it and the matmul without it are faster, as timed like algorithms, false is returned.
/// @returns false, and does nothing, where this build or cuBLASLt has no kernel for the types, strides or epilogue, or
/// the epilogue does not pay.
template <class T, class Out>
bool matmul_cublaslt(const ExecSpace& exec, bool tf32, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                     Matrix<const T> b, State<T> alpha, State<T> beta, const Epilogue<Out>& epilogue = {},
                     const std::function<void(Out*)>& pass = {});

/// Gives the workspaces back, until the next matmul needs one.
void release_cublaslt_workspaces();

/// See matmul_choices and prefer_matmul_choices.
MatmulChoices cublaslt_choices();
void prefer_cublaslt_choices(const std::map<std::string, std::string>& kernels);

/// Version of the library, "13.0.2"; empty in a build without it.
std::string cublaslt_version();

}  // namespace espalier::impl
