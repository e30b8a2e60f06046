// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cross_entropy.hpp"
#include "core/parameter.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

// Every third row is ignored.
struct EntropyCase {
  Values logits;
  std::vector<TokenId> targets;
  explicit EntropyCase(const OpShape& s)
      : logits(random_values("logits", s.rows() * s.vocabulary, 4)),
        targets(random_tokens("targets", s.rows(), s.vocabulary)) {
    for (std::size_t n = 1; n < targets.size(); n += 3)
      targets[n] = -1 - static_cast<TokenId>(n % 2) * 99;
  }
};

TEST(CrossEntropy, losses_are_those_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    const EntropyCase c(s);
    const auto losses = undefined<State<T>>(s.rows());
    const auto logits = on_device<T>(c.logits, s.rows(), s.vocabulary);
    const auto targets = on_device<TokenId>(c.targets, s.rows());
    const std::uint64_t before = fingerprint(logits);
    const Values wanted = reference::cross_entropy(rounded<T>(c.logits), c.targets);
    cross_entropy_forward<T>(ExecSpace(), losses, logits, targets);
    EXPECT_TRUE(allclose(on_host(losses), wanted, tolerance<T>));
    EXPECT_EQ(before, fingerprint(logits)) << "logits are left as they are";
    const std::uint64_t forward_bits = fingerprint(losses);
    cross_entropy_forward_backward<T>(ExecSpace(), losses, logits, targets, State<T>(0.25));
    EXPECT_EQ(forward_bits, fingerprint(losses));
  });
}

template <class T>
Values gradient(const EntropyCase& c, const OpShape& s, double scale) {
  const auto logits = on_device<T>(c.logits, s.rows(), s.vocabulary);
  cross_entropy_forward_backward<T>(ExecSpace(), undefined<State<T>>(s.rows()), logits,
                                    on_device<TokenId>(c.targets, s.rows()), static_cast<State<T>>(scale));
  return on_host(logits);
}

TEST(CrossEntropy, gradient_is_that_of_finite_differences) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const EntropyCase c(s);
    const double scale = 1.0 / 7;
    const Values scales(c.targets.size(), scale);
    const Values dlogits = gradient<double>(c, s, scale);
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(scales, reference::cross_entropy(v, c.targets)); },
                               c.logits, dlogits, 24, 1e-8, {s.rows(), s.vocabulary}));
    EXPECT_TRUE(allclose(gradient<float>(c, s, scale), dlogits, 1e-5, {s.rows(), s.vocabulary}));
  }
}

// Where the model is nearly sure, the target's gradient is a small difference: rounded once, it keeps its digits.
template <class T>
void expect_confident_gradient() {
  const OpShape s{1, 4, 1, 1, 8};
  EntropyCase c(s);
  c.targets = {0, 1, 2, 3};
  for (Index n = 0; n < 4; ++n)
    for (Index v = 0; v < s.vocabulary; ++v)
      c.logits[reference::at(n, v, s.vocabulary)] = v == n ? 4.0 + 2.0 * static_cast<double>(n) : 0.0;
  const Values actual = gradient<T>(c, s, 0.25);
  const Values wanted = gradient<double>(c, s, 0.25);
  for (Index n = 0; n < 4; ++n) {
    const std::size_t target = reference::at(n, n, s.vocabulary);
    EXPECT_LT(wanted[target], 0);
    EXPECT_NEAR(actual[target], wanted[target], -2 * tolerance<T> * wanted[target]) << "row " << n;
  }
}

TEST(CrossEntropy, a_confident_row_keeps_its_gradient_in_16_bits) {
  expect_confident_gradient<bfloat16>();
  expect_confident_gradient<float16>();
}

TEST(CrossEntropy, ignored_rows_have_no_gradient) {
  const OpShape s{2, 6, 1, 1, 33};
  const EntropyCase c(s);
  const Values dlogits = gradient<float>(c, s, 1);
  for (Index n = 0; n < s.rows(); ++n)
    for (Index v = 0; v < s.vocabulary; ++v)
      EXPECT_EQ(dlogits[reference::at(n, v, s.vocabulary)] != 0, c.targets[static_cast<std::size_t>(n)] >= 0)
          << "row " << n << ", column " << v;
}

TEST(CrossEntropy, extreme_logits_stay_finite_and_nan_is_not_lost) {
  const Index vocabulary = 40;
  Values logits(3 * 40, -1e30);
  logits[0] = 1e30;
  logits[40 + 7] = 1e30;
  logits[80 + 5] = std::nan("");
  const auto losses = undefined<float>(3);
  cross_entropy_forward<float>(ExecSpace(), losses, on_device<float>(logits, 3, vocabulary),
                               on_device<TokenId>(std::vector<TokenId>{0, 8, 0}, 3));
  const Values actual = on_host(losses);
  EXPECT_EQ(actual[0], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(actual[1]), 2e30F);
  EXPECT_TRUE(std::isnan(actual[2]));
}

// Columns of the logits as `parts` ranks hold them.
template <class T>
void compare_split_vocabulary(const OpShape& s, Index parts) {
  const EntropyCase c(s);
  const State<T> scale(0.125);
  const auto targets = on_device<TokenId>(c.targets, s.rows());
  const auto whole = on_device<T>(c.logits, s.rows(), s.vocabulary);
  const auto wanted_losses = undefined<State<T>>(s.rows());
  cross_entropy_forward_backward<T>(ExecSpace(), wanted_losses, whole, targets, scale);
  const Values wanted = on_host(whole);

  std::vector<IndexRange> columns;
  std::vector<Tensor<T, 2>> logits;
  Values largest(static_cast<std::size_t>(s.rows()), -1e300), sums(2 * largest.size(), 0.0);
  const auto partial = undefined<State<T>>(s.rows());
  const auto partial_sums = undefined<State<T>>(2 * s.rows());
  for (Index part = 0; part < parts; ++part) {
    const IndexRange ours = columns.emplace_back(Shard{0, part, parts}.range(s.vocabulary));
    Values local;
    for (Index n = 0; n < s.rows(); ++n)
      for (Index v = ours.begin; v < ours.end; ++v)
        local.push_back(c.logits[reference::at(n, v, s.vocabulary)]);
    logits.push_back(on_device<T>(local, s.rows(), ours.size()));
    cross_entropy_largest<T>(ExecSpace(), partial, logits.back());
    const Values values = on_host(partial);
    for (std::size_t n = 0; n < values.size(); ++n)
      largest[n] = std::max(largest[n], values[n]);
  }
  const auto all_largest = on_device<State<T>>(largest, s.rows());
  for (Index part = 0; part < parts; ++part) {
    const auto p = static_cast<std::size_t>(part);
    cross_entropy_sums<T>(ExecSpace(), partial_sums, logits[p], targets, all_largest, columns[p].begin);
    sums = reference::add(sums, on_host(partial_sums));
  }
  const auto all_sums = on_device<State<T>>(sums, 2 * s.rows());
  const auto losses = undefined<State<T>>(s.rows());
  cross_entropy_losses<State<T>>(ExecSpace(), losses, targets, all_largest, all_sums);
  EXPECT_TRUE(allclose(on_host(losses), on_host(wanted_losses), tolerance<T>)) << parts << " parts";
  for (Index part = 0; part < parts; ++part) {
    const auto p = static_cast<std::size_t>(part);
    cross_entropy_split_backward<T>(ExecSpace(), logits[p], targets, all_largest, all_sums, columns[p].begin, scale);
    const Values gradient = on_host(logits[p]);
    for (Index n = 0; n < s.rows(); ++n)
      for (Index v = 0; v < columns[p].size(); ++v) {
        const double want = wanted[reference::at(n, columns[p].begin + v, s.vocabulary)];
        EXPECT_NEAR(gradient[reference::at(n, v, columns[p].size())], want, 1e-6 + 2 * tolerance<T> * std::abs(want))
            << "row " << n << " of " << part;
      }
  }
}

TEST(CrossEntropy, a_split_vocabulary_gives_the_same) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    for (const Index parts : {1, 2, 3})
      if (parts <= s.vocabulary)
        compare_split_vocabulary<T>(s, parts);
  });
}

TEST(CrossEntropy, losses_are_added_to_the_total) {
  const Values losses = random_values("losses", 1000);
  const Tensor<double, 0> total("espalier::other::total");
  Kokkos::deep_copy(total, 3.0);
  add_losses<double>(ExecSpace(), total, on_device<double>(losses, 1000), 0.5);
  double wanted = 0;
  for (const double loss : losses)
    wanted += loss;
  EXPECT_NEAR(on_host(total)[0], 3 + 0.5 * wanted, 1e-12);
}

}  // namespace
