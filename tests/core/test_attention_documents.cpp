// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Attention that stops where documents start, by both kernels.
#include "core/ops/attention_heads.hpp"
#include "core/ops/attention_rows.hpp"
#include "tests/support/attention_result.hpp"
#include "tests/support/documents.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Case {
  OpShape shape;
  std::vector<Index> lengths;  // of documents
  std::vector<int> positions() const { return document_positions(shape.batch, shape.length, lengths); }
};

// Documents around the tiles of 64 or 128 queries and 256 keys, in rows that cut them; groups and windows.
std::vector<Case> cases() {
  return {{{1, 1, 1, 3, 1}, {1}},
          {{2, 9, 2, 4, 1}, {1}},
          {{2, 9, 2, 5, 1}, {3, 1, 2}},
          {{3, 33, 2, 5, 1}, {31, 2, 40}},
          {{1, 700, 1, 4, 1}, {63, 64, 65, 1, 300}},
          {{2, 321, 4, 3, 1, 2}, {5, 257, 30}},
          {{2, 300, 3, 4, 1, 1, 7}, {10, 6, 130, 8}},
          {{1, 640, 2, 4, 1, 0, 100}, {300, 90, 101}},
          {{1, 520, 1, 4, 1, 0, 1000}, {400}}};
}

template <class T>
AttentionResult run(const Case& c, const Values& qkv, const Values& dout, bool by_rows,
                    const AttentionDropout& dropout = {}) {
  if (by_rows)
    return run_attention<T>(impl::attention_forward_rows<T>, impl::attention_backward_rows<T>, qkv, dout, c.shape,
                            dropout, c.positions());
  return run_attention<T>(attention_forward<T>, attention_backward<T>, qkv, dout, c.shape, dropout, c.positions());
}

// With and without dropout, whose mask knows no documents.
void check(const Case& c, bool by_rows, double rate) {
  const OpShape& s = c.shape;
  SCOPED_TRACE(to_text(s) + (by_rows ? " by rows" : "") + (rate > 0 ? " with dropout" : ""));
  const AttentionDropout dropout{{rate, 99, 0}, s.heads};
  reference::ProbabilityFactor factor;
  if (rate > 0)
    factor = [&](Index b, Index h, Index t, Index k) {
      return reference::dropout_factor(99, rate, (b * s.heads + h) * s.length + t, k);
    };
  const Values qkv = random_values("qkv", s.rows() * s.qkv_channels(), 2);
  const Values dout = random_values("dout", s.rows() * s.channels());
  const AttentionResult actual = run<double>(c, qkv, dout, by_rows, dropout);
  const std::vector<int> positions = c.positions();
  Values log_sum_exp(actual.log_sum_exp.size());
  EXPECT_TRUE(allclose(actual.out, reference::attention(qkv, s, &log_sum_exp, factor, positions), 1e-12));
  EXPECT_TRUE(allclose(actual.log_sum_exp, log_sum_exp, 1e-12));
  EXPECT_TRUE(
      gradient_check([&](const Values& v) { return dot(dout, reference::attention(v, s, nullptr, factor, positions)); },
                     qkv, actual.dqkv, 12, 1e-8, {s.rows(), s.qkv_heads(), s.head_size}));
  EXPECT_TRUE(allclose(run<float>(c, qkv, dout, by_rows, dropout).dqkv, actual.dqkv, 2e-5));
}

TEST(AttentionDocuments, is_that_of_plain_loops_and_its_gradient_of_finite_differences) {
  for (const Case& c : cases())
    for (const bool by_rows : {false, true})
      for (const double rate : {0.0, 0.4})
        check(c, by_rows, rate);
}

template <class T>
void compare_16_bits(const Case& c) {
  const OpShape& s = c.shape;
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()));
  const Values qkv = rounded<T>(random_values("qkv", s.rows() * s.qkv_channels(), 2));
  const Values dout = rounded<T>(random_values("dout", s.rows() * s.channels()));
  const AttentionResult wanted = run<double>(c, qkv, dout, false);
  for (const bool by_rows : {false, true}) {
    const AttentionResult actual = run<T>(c, qkv, dout, by_rows);
    EXPECT_TRUE(allclose(actual.out, wanted.out, 4 * tolerance<T>));
    EXPECT_TRUE(allclose(actual.dqkv, wanted.dqkv, 24 * tolerance<T>));
  }
}

TEST(AttentionDocuments, in_16_bits_is_that_of_fp64) {
  for (const Case& c : cases()) {
    compare_16_bits<bfloat16>(c);
    compare_16_bits<float16>(c);
  }
}

// What another document holds is not even read: it may be anything.
TEST(AttentionDocuments, see_nothing_of_each_other) {
  const Case c{{1, 400, 2, 5, 1}, {100, 150}};
  const Values dout = random_values("dout", c.shape.rows() * c.shape.channels());
  Values qkv = random_values("qkv", c.shape.rows() * c.shape.qkv_channels());
  for (const bool by_rows : {false, true}) {
    const AttentionResult before = run<float>(c, qkv, dout, by_rows);
    Values other = qkv;
    for (Index i = 0; i < 100 * c.shape.qkv_channels(); ++i)  // the first document
      other[static_cast<std::size_t>(i)] = std::nan("");
    const AttentionResult after = run<float>(c, other, dout, by_rows);
    const auto behind = [&](const Values& values, Index columns) {
      return Values(values.begin() + 100 * columns, values.end());
    };
    EXPECT_EQ(behind(after.out, c.shape.channels()), behind(before.out, c.shape.channels()));
    EXPECT_EQ(behind(after.dqkv, c.shape.qkv_channels()), behind(before.dqkv, c.shape.qkv_channels()));
  }
}

// A document has the bits that it has in a row of its own: tiles begin where it does.
TEST(AttentionDocuments, have_the_bits_that_they_have_alone) {
  const Case c{{1, 700, 3, 16, 1, 1}, {63, 64, 65, 1, 300, 207}};
  const Values dout = random_values("dout", c.shape.rows() * c.shape.channels());
  const Values qkv = random_values("qkv", c.shape.rows() * c.shape.qkv_channels());
  const AttentionResult packed = run<float>(c, qkv, dout, false);
  for (const IndexRange& document : document_ranges(c.positions())) {
    const auto part = [&](const Values& values, Index columns) {
      return Values(values.begin() + document.begin * columns, values.begin() + document.end * columns);
    };
    OpShape alone = c.shape;
    alone.length = document.size();
    const AttentionResult wanted =
        run_attention<float>(attention_forward<float>, attention_backward<float>, part(qkv, alone.qkv_channels()),
                             part(dout, alone.channels()), alone);
    EXPECT_EQ(part(packed.out, alone.channels()), wanted.out) << document.begin;
    EXPECT_EQ(part(packed.dqkv, alone.qkv_channels()), wanted.dqkv) << document.begin;
  }
}

TEST(AttentionDocuments, begin_and_end_where_positions_say) {
  const Case c{{2, 33, 1, 1, 1}, {1, 5, 2, 40}};
  const impl::Documents documents{on_device<int>(c.positions(), c.shape.rows()), c.shape.length};
  if constexpr (exec_is_host)
    for (const IndexRange& document : document_ranges(c.positions()))
      for (Index n = document.begin; n < document.end; ++n) {
        const Index b = n / c.shape.length, first = b * c.shape.length;
        EXPECT_EQ(documents.start(b, n - first), document.begin - first);
        EXPECT_EQ(documents.end(b, n - first), document.end - first);
      }
}

}  // namespace
