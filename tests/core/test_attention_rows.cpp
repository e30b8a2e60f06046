// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The kernel that GPUs take where they have no faster one, on any device.
#include "core/ops/attention_rows.hpp"
#include "tests/support/attention_result.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/op_shapes.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

template <class T>
AttentionResult run_rows(const Values& qkv, const Values& dout, const OpShape& s) {
  return run_attention<T>(impl::attention_forward_rows<T>, impl::attention_backward_rows<T>, qkv, dout, s);
}

// Around the 32 keys that meet a row at once.
std::vector<OpShape> shapes() {
  std::vector<OpShape> shapes = op_shapes();
  for (const Index length : {31, 32, 33, 64, 65})
    shapes.push_back({2, length, 2, 5, 1});
  for (const OpShape& s : grouped_and_windowed_shapes())
    shapes.push_back(s);
  return shapes;
}

TEST(AttentionRows, forward_is_that_of_plain_loops) {
  const auto check = []<class T>(const OpShape& s) {
    const Values qkv = rounded<T>(random_values("qkv", s.rows() * s.qkv_channels(), 2));
    const AttentionResult actual = run_rows<T>(qkv, random_values("dout", s.rows() * s.channels()), s);
    Values log_sum_exp(actual.log_sum_exp.size());
    EXPECT_TRUE(
        allclose(actual.out, reference::attention(qkv, s, &log_sum_exp), tolerance<T>, {s.rows(), s.channels()}));
    EXPECT_TRUE(allclose(actual.log_sum_exp, log_sum_exp, tolerance<T>, {s.batch, s.heads, s.length}));
  };
  for (const OpShape& s : shapes()) {
    run_check<float>(check, s);
    run_check<double>(check, s);
    run_check<bfloat16>(check, s);
    run_check<float16>(check, s);
  }
}

TEST(AttentionRows, gradient_is_that_of_finite_differences) {
  for (const OpShape& s : shapes()) {
    SCOPED_TRACE(to_text(s));
    const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
    const Values dout = random_values("dout", s.rows() * s.channels());
    const Values dqkv = run_rows<double>(qkv, dout, s).dqkv;
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dout, reference::attention(v, s)); }, qkv, dqkv, 12,
                               1e-8, {s.rows(), s.qkv_heads(), s.head_size}));
    EXPECT_TRUE(allclose(run_rows<float>(qkv, dout, s).dqkv, dqkv, 2e-5, {s.rows(), s.qkv_heads(), s.head_size}));
  }
}

}  // namespace
