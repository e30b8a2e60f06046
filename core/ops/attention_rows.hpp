// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention.hpp"

namespace espalier::impl {

/// attention_forward() and attention_backward() for GPUs of any kind and all types and head sizes: a row of the result
/// belongs to one thread, whose vector lanes share the keys (or queries) that it meets. Reads K and V from the caches
/// again for each row, and uses no tensor cores: what cuDNN does not compute comes here (attention_cudnn.hpp).
template <class T>
void attention_forward_rows(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp,
                            const Tensor<T, 2>& qkv, const AttentionShape& shape, const AttentionDropout& dropout = {},
                            const Tensor<int, 1>& positions = {});
template <class T>
void attention_backward_rows(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                             const Tensor<T, 2>& out, const Tensor<State<T>, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                             const AttentionShape& shape, const AttentionDropout& dropout = {},
                             const Tensor<int, 1>& positions = {});

}  // namespace espalier::impl
