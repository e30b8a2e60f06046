// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention.hpp"
#include "tests/support/op_shapes.hpp"
#include "tests/support/tensors.hpp"

namespace espalier::test {

/// What attention writes.
struct AttentionResult {
  Values out, log_sum_exp, dqkv;
};

/// forward(exec, out, log_sum_exp, qkv, shape, dropout, positions), then backward(exec, dqkv, dout, out, log_sum_exp,
/// qkv, shape, dropout, positions), into memory that holds anything.
template <class T, class Forward, class Backward>
AttentionResult run_attention(const Forward& forward, const Backward& backward, const Values& qkv, const Values& dout,
                              const OpShape& s, const AttentionDropout& dropout = {},
                              const std::vector<int>& positions = {}) {
  const AttentionShape shape{s.batch, s.length, s.heads, s.head_size, s.kv_heads(), s.window};
  const auto qkv_device = on_device<T>(qkv, s.rows(), s.qkv_channels());
  const auto out = undefined<T>(s.rows(), s.channels());
  const auto log_sum_exp = undefined<State<T>>(s.rows() * s.heads);
  const auto dqkv = undefined<T>(s.rows(), s.qkv_channels());
  const Tensor<int, 1> starts = on_device<int>(positions, positions.size());
  forward(ExecSpace(), out, log_sum_exp, qkv_device, shape, dropout, starts);
  backward(ExecSpace(), dqkv, on_device<T>(dout, s.rows(), s.channels()), out, log_sum_exp, qkv_device, shape, dropout,
           starts);
  return {on_host(out), on_host(log_sum_exp), on_host(dqkv)};
}

}  // namespace espalier::test
