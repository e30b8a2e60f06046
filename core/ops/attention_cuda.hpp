// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention.hpp"

namespace espalier::impl {

/// attention_forward() and attention_backward() on tensor cores (attention_tiles.hpp), for head sizes of up to 128 that
/// are multiples of 8. Probabilities are rounded to T before they meet V.
/// @returns false, and does nothing, where this build, the GPU (before sm_80) or the shape does not allow it.
template <class T>
bool attention_forward_cuda(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp,
                            const Tensor<T, 2>& qkv, const AttentionShape& shape);
template <class T>
bool attention_backward_cuda(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                             const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                             const AttentionShape& shape);

}  // namespace espalier::impl
