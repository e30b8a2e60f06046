// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/attention_heads.hpp"
#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "tests/support/attention_result.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

template <class T>
AttentionResult run(const Values& qkv, const Values& dout, const OpShape& s) {
  return run_attention<T>(attention_forward<T>, attention_backward<T>, qkv, dout, s);
}

// On hosts bf16 tiles are multiplied as they are or widened, as the GEMM library of the process can; on GPUs attention
// may have a library of its own.
template <class F>
void with_each_way(const F& f) {
  const MatmulLibrary matmul_before = matmul_library();
  const AttentionLibrary attention_before = attention_library();
  for (const MatmulLibrary matmul : {MatmulLibrary::tiled, default_matmul_library(ScalarType::bf16)})
    for (const AttentionLibrary attention : attention_libraries()) {
      SCOPED_TRACE(std::string(to_string(matmul)) + ", " + to_string(attention));
      set_matmul_library(matmul);
      set_attention_library(attention);
      f();
    }
  set_matmul_library(matmul_before);
  set_attention_library(attention_before);
}

// Every row of these differs in length from the tiles: 64 or 128 queries, 256 keys.
std::vector<OpShape> attention_shapes() {
  std::vector<OpShape> shapes = op_shapes();
  for (const Index head_size : {1, 2, 3, 15, 16, 17, 31, 33, 64, 80})
    shapes.push_back({1, 9, 2, head_size, 1});
  for (const Index length : {2, 127, 128, 129, 255, 256, 511, 513})
    shapes.push_back({1, length, 1, 4, 1});
  for (const OpShape& s : grouped_and_windowed_shapes())
    shapes.push_back(s);
  for (const OpShape& s :
       {OpShape{2, 129, 6, 16, 1, 2}, OpShape{1, 300, 4, 64, 1, 1}, OpShape{1, 300, 4, 64, 1, 2, 100},
        OpShape{2, 257, 3, 32, 1, 3, 40}})  // heads that cuDNN takes
    shapes.push_back(s);
  return shapes;
}

template <class T>
void compare_forward(const OpShape& s) {
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()));
  const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
  const AttentionResult actual = run<T>(qkv, random_values("dout", s.rows() * s.channels()), s);
  Values log_sum_exp(actual.log_sum_exp.size());
  const Values out = reference::attention(rounded<T>(qkv), s, &log_sum_exp);
  const bool rounds_weights =
      multiplies_16_bits(scalar_type_of<T>(), matmul_library()) || (!exec_is_host && has_master_weights<T>);
  const double rounded_weights = rounds_weights ? 4 : 1;  // probabilities, as operands
  EXPECT_TRUE(allclose(actual.out, out, rounded_weights * tolerance<T>, {s.rows(), s.channels()}));
  EXPECT_TRUE(allclose(actual.log_sum_exp, log_sum_exp, tolerance<T>, {s.batch, s.heads, s.length}));
}

TEST(Attention, forward_is_that_of_plain_loops) {
  for (const OpShape& s : attention_shapes()) {
    compare_forward<float>(s);
    compare_forward<double>(s);
    with_each_way([&] { compare_forward<bfloat16>(s); });
    with_each_way([&] { compare_forward<float16>(s); });
  }
}

TEST(Attention, gradient_is_that_of_finite_differences) {
  for (const OpShape& s : attention_shapes()) {
    SCOPED_TRACE(to_text(s));
    const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
    const Values dout = random_values("dout", s.rows() * s.channels());
    const Values dqkv = run<double>(qkv, dout, s).dqkv;
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dout, reference::attention(v, s)); }, qkv, dqkv, 12,
                               1e-8, {s.rows(), s.qkv_heads(), s.head_size}));
    EXPECT_TRUE(allclose(run<float>(qkv, dout, s).dqkv, dqkv, 2e-5, {s.rows(), s.qkv_heads(), s.head_size}));
  }
}

// From the same rounded inputs, so that what differs is the rounding of the output, from which backward starts too: it
// subtracts dout . out, which may be much larger than what is left.
template <class T>
void compare_gradient_of_16_bits(const OpShape& s) {
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()));
  const Values qkv = rounded<T>(random_values("qkv", s.rows() * s.qkv_channels(), 2));
  const Values dout = rounded<T>(random_values("dout", s.rows() * s.channels()));
  const Values actual = run<T>(qkv, dout, s).dqkv;
  const Values wanted = run<double>(qkv, dout, s).dqkv;
  EXPECT_TRUE(allclose(actual, wanted, 24 * tolerance<T>, {s.rows(), s.qkv_heads(), s.head_size}));
  double error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    error += (actual[i] - wanted[i]) * (actual[i] - wanted[i]);
  EXPECT_LT(std::sqrt(error), 2 * tolerance<T> * std::sqrt(dot(wanted, wanted)));
}

TEST(Attention, gradient_of_16_bits_is_that_of_fp64) {
  for (const OpShape& s : attention_shapes()) {
    with_each_way([&] { compare_gradient_of_16_bits<bfloat16>(s); });
    with_each_way([&] { compare_gradient_of_16_bits<float16>(s); });
  }
}

// Long sequences, of which cuDNN's backward computes a few heads at a time: 2 parts of 5 groups, and 2 of a sequence.
TEST(Attention, libraries_agree_on_long_sequences) {
  if (attention_libraries().size() == 1)
    GTEST_SKIP() << "this build has one library of attention";
  for (const OpShape& s : {OpShape{1, 2048, 40, 16, 1, 10}, OpShape{2, 2048, 24, 16, 1, 8, 300}}) {
    SCOPED_TRACE(to_text(s));
    const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
    const Values dout = random_values("dout", s.rows() * s.channels());
    const AttentionLibrary before = attention_library();
    std::vector<AttentionResult> results;
    for (const AttentionLibrary library : attention_libraries()) {
      set_attention_library(library);
      results.push_back(run<bfloat16>(qkv, dout, s));
    }
    EXPECT_EQ(describe_attention(ScalarType::bf16, {s.batch, s.length, s.heads, s.head_size, s.kv_heads(), s.window}),
              "cuDNN");
    set_attention_library(before);
    EXPECT_TRUE(allclose(results[1].out, results[0].out, 8 * tolerance<bfloat16>, {s.rows(), s.channels()}));
    EXPECT_TRUE(
        allclose(results[1].dqkv, results[0].dqkv, 48 * tolerance<bfloat16>, {s.rows(), s.qkv_heads(), s.head_size}));
  }
}

TEST(Attention, large_scores_do_not_overflow) {
  const OpShape s{1, 300, 1, 4, 1};
  Values qkv = random_values("qkv", s.rows() * 12, 40);  // scores up to 3200
  const AttentionResult actual = run<float>(qkv, random_values("dout", s.rows() * 4), s);
  EXPECT_TRUE(allclose(actual.out, reference::attention(rounded<float>(qkv), s), 2e-3, {s.rows(), 4}));
  for (const double value : actual.dqkv)
    ASSERT_TRUE(std::isfinite(value));
}

TEST(Attention, what_comes_later_changes_nothing_before) {
  const OpShape s{1, 300, 2, 5, 1};
  const Values dout = random_values("dout", s.rows() * s.channels());
  Values qkv = random_values("qkv", s.rows() * s.qkv_channels());
  const Values before = run<float>(qkv, dout, s).out;
  for (const Index changed : {299, 256, 64, 1}) {
    Values other = qkv;
    for (Index i = changed * 3 * s.channels(); i < static_cast<Index>(qkv.size()); ++i)
      other[static_cast<std::size_t>(i)] = -1;
    const Values after = run<float>(other, dout, s).out;
    for (Index i = 0; i < changed * s.channels(); ++i)
      ASSERT_EQ(before[static_cast<std::size_t>(i)], after[static_cast<std::size_t>(i)])
          << "row " << i / s.channels() << " sees row " << changed;
  }
}

// Rows out of the window, and other groups, may hold anything.
TEST(Attention, what_no_query_sees_is_not_read) {
  const OpShape s{1, 700, 4, 5, 1, 2, 100};
  const Values dout = random_values("dout", s.rows() * s.channels());
  Values qkv = random_values("qkv", s.rows() * s.qkv_channels());
  const Index first_seen = 600;  // by queries from 699 on
  const Values before = run<float>(qkv, dout, s).out;
  for (Index row = 0; row < first_seen; ++row)
    for (Index c = s.channels(); c < s.qkv_channels(); ++c)
      qkv[reference::at(row, c, s.qkv_channels())] = 1e30;
  for (Index row = first_seen; row < s.rows(); ++row)  // K of the second group
    for (Index c = 5 * s.head_size; c < 6 * s.head_size; ++c)
      qkv[reference::at(row, c, s.qkv_channels())] = 0.5;
  const Values after = run<float>(qkv, dout, s).out;
  for (Index c = 0; c < 2 * s.head_size; ++c)
    EXPECT_EQ(before[reference::at(699, c, s.channels())], after[reference::at(699, c, s.channels())]) << c;
  EXPECT_NE(before[reference::at(699, 2 * s.head_size, s.channels())],
            after[reference::at(699, 2 * s.head_size, s.channels())]);
}

TEST(Attention, keys_of_a_sequence_are_counted) {
  for (const OpShape& s : attention_shapes()) {
    const AttentionShape shape{s.batch, s.length, s.heads, s.head_size, s.kv_heads(), s.window};
    double seen = 0;
    for (Index query = 0; query < s.length; ++query)
      seen += static_cast<double>(query - impl::first_key(shape, query) + 1);
    EXPECT_EQ(shape.seen_keys(), seen) << to_text(s);
    for (Index key = 0; key < s.length; ++key) {
      const Index end = impl::end_of_queries(shape, key, s.length);
      EXPECT_TRUE(end == s.length || impl::first_key(shape, end) > key) << key;
      EXPECT_LE(impl::first_key(shape, end - 1), key);
    }
  }
}

TEST(Attention, nan_is_not_lost) {
  const OpShape s{1, 70, 1, 4, 1};
  Values qkv = random_values("qkv", s.rows() * 12);
  qkv[3 * 12] = std::nan("");  // Q of row 3
  const Values out = run<float>(qkv, random_values("dout", s.rows() * 4), s).out;
  EXPECT_TRUE(std::isnan(out[3 * 4]));
  EXPECT_FALSE(std::isnan(out[2 * 4]));
  EXPECT_FALSE(std::isnan(out[4 * 4]));
}

// Kokkos counts the scratch memory of a team in int.
TEST(Attention, a_head_beyond_the_memory_of_a_team_is_refused) {
  if constexpr (!exec_is_host)
    GTEST_SKIP() << "a tile of a head is all that lies in the scratch memory of a GPU";
  float nothing = 0;  // no element of these is touched
  const auto refused = [&](Index length, Index head_size) {
    const AttentionShape shape{1, length, 1, head_size, 1};
    const Tensor<float, 2> rows(&nothing, length, head_size);
    const Tensor<float, 1> log_sum_exp(&nothing, length);
    const Tensor<float, 2> qkv(&nothing, length, 3 * head_size);
    const auto attempt = [&](const auto& pass) {
      try {
        pass();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_EQ(error.report().got, fmt::format("{} positions of {} channels a head", length, head_size));
      }
    };
    if (head_size > length)
      attempt([&] { attention_forward<float>(ExecSpace(), rows, log_sum_exp, qkv, shape); });
    attempt([&] { attention_backward<float>(ExecSpace(), qkv, rows, rows, log_sum_exp, qkv, shape); });
  };
  refused(1, Index{1} << 25);
  refused(Index{1} << 15, Index{1} << 15);
}

}  // namespace
