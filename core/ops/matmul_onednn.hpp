// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"

namespace espalier::impl {

/// Whether oneDNN is here and this CPU has units for bf16 (AVX512_BF16, AMX). Without them it would imitate bf16
/// matmuls, slower than matmuls of operands widened to fp32.
bool onednn_multiplies_bf16();

/// What a matmul may copy its right operand into, in the order in which oneDNN reads it: one buffer for the process.
inline constexpr std::size_t onednn_packed_bytes = std::size_t{16} << 20;

/// c = op(a) * op(b) + beta * c by all threads of the process, plus bias (N) in every row of c if there is one.
/// @pre onednn_multiplies_bf16()
void matmul_onednn(Matrix<bfloat16> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                   float beta, const bfloat16* bias = nullptr);
void matmul_onednn(Matrix<float> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                   float beta, const bfloat16* bias = nullptr);

/// The matmul by the calling thread alone, inside a parallel region: no exception can leave that, so what it throws
/// (no memory for a kernel) ends the process with its text.
void tile_matmul_onednn(Matrix<float> c, Transpose ta, Matrix<const bfloat16> a, Transpose tb, Matrix<const bfloat16> b,
                        float beta);

/// Gives the buffer for packed operands back, until a matmul needs it again.
void release_onednn_workspace();

}  // namespace espalier::impl
