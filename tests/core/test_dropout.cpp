// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_rows.hpp"
#include "core/ops/dropout.hpp"
#include "tests/support/attention_result.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr Dropout quarter(0.25, 12345, 1000);

template <class T>
Values dropped(const Values& x, Index rows, Index columns, const Dropout& dropout) {
  const auto y = undefined<T>(rows, columns);
  apply_dropout<T>(ExecSpace(), y, on_device<T>(x, rows, columns), dropout);
  return on_host(y);
}

// The factors of columns [first, first + count) of row 5.
Values part_of_row(Index first, Index count) {
  const auto values = on_device<double>(Values(static_cast<std::size_t>(count), 1), 1, count);
  const Dropout dropout = quarter;  // device code has no constants of the host
  for_rows(
      ExecSpace(), "part_of_row", 1, KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        dropout.apply(thread, &values(n, 0), &values(n, 0), 5, first, count);
      });
  return on_host(values);
}

// Widths around the 4 columns of a block of random words and the 128 of a loop.
TEST(Dropout, factors_are_those_of_the_place) {
  for (const Index columns : {1, 3, 4, 5, 127, 128, 129, 600}) {
    const Index rows = 7;
    const Values x(static_cast<std::size_t>(rows * columns), 1);
    Values wanted(x.size());
    for (Index n = 0; n < rows; ++n)
      for (Index c = 0; c < columns; ++c)
        wanted[reference::at(n, c, columns)] = reference::dropout_factor(12345, 0.25, 1000 + n, c);
    EXPECT_TRUE(allclose(dropped<double>(x, rows, columns, quarter), wanted, 1e-15)) << columns;
    EXPECT_TRUE(allclose(dropped<float>(x, rows, columns, quarter), wanted, 1e-6)) << columns;
    EXPECT_TRUE(allclose(dropped<bfloat16>(x, rows, columns, quarter), wanted, 1e-2)) << columns;
  }
}

TEST(Dropout, a_part_of_a_row_has_the_factors_of_the_whole) {
  const Values whole = part_of_row(0, 300);
  for (const Index first : {1, 2, 3, 4, 129})
    for (const Index count : {1, 2, 6, 130}) {
      const Values part = part_of_row(first, count);
      for (Index i = 0; i < count; ++i)
        ASSERT_EQ(part[static_cast<std::size_t>(i)], whole[static_cast<std::size_t>(first + i)]) << first << " " << i;
    }
}

TEST(Dropout, drops_its_share_and_keeps_the_mean) {
  const Index rows = 200, columns = 500;
  const auto count = static_cast<double>(rows * columns);
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Values y = dropped<double>(Values(static_cast<std::size_t>(count), 1), rows, columns, {rate, 7, 0});
    const auto zeros = static_cast<double>(std::ranges::count(y, 0.0));
    EXPECT_NEAR(zeros / count, rate, 5 * std::sqrt(rate * (1 - rate) / count));
    EXPECT_NEAR(*std::ranges::max_element(y), 1 / (1 - rate), 1e-12);
  }
}

TEST(Dropout, other_keys_and_rows_drop_other_values) {
  const Values ones(1000, 1);
  const Values before = dropped<double>(ones, 1, 1000, quarter);
  for (const Dropout& other : {Dropout{0.25, 12346, 1000}, Dropout{0.25, 12345, 1001}}) {
    const Values after = dropped<double>(ones, 1, 1000, other);
    Index same = 0;
    for (std::size_t i = 0; i < ones.size(); ++i)
      same += before[i] == after[i];
    EXPECT_NEAR(static_cast<double>(same), 625, 80);  // 0.75^2 + 0.25^2
  }
}

TEST(Dropout, what_is_added_to_the_residual_stream_is_dropped) {
  const Index rows = 3, columns = 700;
  const Values product = random_values("product", rows * columns), bias = random_values("bias", columns);
  const Values residual = random_values("residual", rows * columns);
  for (const bool has_bias : {false, true}) {
    Values wanted = residual;
    for (Index n = 0; n < rows; ++n)
      for (Index c = 0; c < columns; ++c)
        wanted[reference::at(n, c, columns)] +=
            reference::dropout_factor(12345, 0.25, 1000 + n, c) *
            (product[reference::at(n, c, columns)] + (has_bias ? bias[static_cast<std::size_t>(c)] : 0));
    const auto y = undefined<float>(rows, columns);
    add_dropped<bfloat16, float>(ExecSpace(), y, on_device<bfloat16>(product, rows, columns),
                                 has_bias ? on_device<bfloat16>(bias, columns) : Tensor<bfloat16, 1>(),
                                 on_device<float>(residual, rows, columns), quarter);
    EXPECT_TRUE(allclose(on_host(y), wanted, 1e-2));
    const auto in_place = on_device<double>(product, rows, columns);
    add_dropped<double>(ExecSpace(), in_place, in_place,
                        has_bias ? on_device<double>(bias, columns) : Tensor<double, 1>(),
                        on_device<double>(residual, rows, columns), quarter);
    EXPECT_TRUE(allclose(on_host(in_place), wanted, 1e-14));
  }
}

// Heads [first_head, first_head + s.heads) of 7, sequences from number 2 on.
AttentionDropout of_probabilities(const OpShape& s, double rate, Index first_head) {
  return {{rate, 99, static_cast<std::uint64_t>((2 * 7 + first_head) * s.length)}, 7};
}

template <class T>
AttentionResult run_dropped(const Values& qkv, const Values& dout, const OpShape& s, bool by_rows) {
  const AttentionDropout dropout = of_probabilities(s, 0.4, 3);
  if (by_rows)
    return run_attention<T>(impl::attention_forward_rows<T>, impl::attention_backward_rows<T>, qkv, dout, s, dropout);
  return run_attention<T>(attention_forward<T>, attention_backward<T>, qkv, dout, s, dropout);
}

TEST(Dropout, attention_is_that_of_plain_loops_and_its_gradient_of_finite_differences) {
  std::vector<OpShape> shapes = grouped_and_windowed_shapes();
  shapes.push_back({2, 130, 3, 16, 1});
  for (const OpShape& s : shapes)
    for (const bool by_rows : {false, true}) {
      SCOPED_TRACE(to_text(s) + (by_rows ? " by rows" : ""));
      const reference::ProbabilityFactor factor = [&](Index b, Index h, Index t, Index k) {
        return reference::dropout_factor(99, 0.4, ((2 + b) * 7 + 3 + h) * s.length + t, k);
      };
      const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
      const Values dout = random_values("dout", s.rows() * s.channels());
      const AttentionResult actual = run_dropped<double>(qkv, dout, s, by_rows);
      Values log_sum_exp(actual.log_sum_exp.size());
      EXPECT_TRUE(allclose(actual.out, reference::attention(qkv, s, &log_sum_exp, factor), 1e-12));
      EXPECT_TRUE(allclose(actual.log_sum_exp, log_sum_exp, 1e-12));
      EXPECT_TRUE(
          gradient_check([&](const Values& v) { return dot(dout, reference::attention(v, s, nullptr, factor)); }, qkv,
                         actual.dqkv, 12, 1e-8, {s.rows(), s.qkv_heads(), s.head_size}));
      EXPECT_TRUE(allclose(run_dropped<float>(qkv, dout, s, by_rows).dqkv, actual.dqkv, 2e-5));
    }
}

}  // namespace
