// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/published/kind_interval.hpp"
#include "tests/published/left_out.hpp"

namespace espalier {
namespace {

const auto all_rows = [](const PublishedCase&) { return true; };
const auto source_of = [](const PublishedCase& row) { return row.origin; };

// GPTs of some sizes by two sources, which took as long as the planner says times `slower` of their source.
std::vector<PricedCase> runs(double slower_a, double slower_b) {
  std::string text =
      "id,source,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
      "iter_time_s\n";
  for (const char* source : {"a", "b"})
    for (const char* shape : {"24,2048,16", "32,4096,32", "48,6144,48"})
      text += std::string("r,") + source + "," + shape + ",51200,2048,A100-80GB,8,8,1,1,64,4,bf16,full,10\n";
  std::vector<PricedCase> cases;
  for (PublishedCase& read : read_cases(text, "table.csv").cases) {
    cases.push_back(price_case(std::move(read)));
    PublishedCase& made = cases.back().published;
    made.measured_seconds = cases.back().price->step_seconds * (made.origin == "a" ? slower_a : slower_b);
  }
  return cases;
}

ConstantFit fit_of(std::vector<PricedCase> cases) {
  std::vector<PublishedCase> published;
  for (const PricedCase& each : cases)
    published.push_back(each.published);
  return {std::move(cases), constants_of_time(published), time_target()};
}

// Within what the spreads hold back.
TEST(LeftOut, a_fit_removes_the_error_of_its_rows) {
  const ConstantFit fit = fit_of(runs(1.2, 1.2));
  for (const auto& each : fit.errors(LogFactors(fit.constants().size(), 0), all_rows))
    EXPECT_NEAR(each.error, 1 / 1.2 - 1, 1e-9);
  for (const auto& each : fit.errors(fit.fit(all_rows), all_rows))
    EXPECT_LT(std::abs(each.error), 0.07);
}

// Source b took three times as long. Constants without it stay what they are, and those without a follow b.
TEST(LeftOut, a_row_that_is_left_out_does_not_move_its_own_prediction) {
  const ConstantFit fit = fit_of(runs(1, 3));
  for (const auto& each : fit.left_out_errors(source_of)) {
    if (fit.cases()[each.row].published.origin == "b") {
      EXPECT_NEAR(each.error, 1.0 / 3 - 1, 1e-3);
    } else {
      EXPECT_GT(each.error, 0.1);
    }
  }
}

TEST(LeftOut, what_is_held_and_what_no_row_touches_stays) {
  ConstantFit fit = fit_of(runs(1.2, 1.2));
  fit.hold(0, true);
  const LogFactors factors = fit.fit(all_rows);
  EXPECT_NEAR(factors[0], 0, 1e-6);
  for (std::size_t i = 0; i < factors.size(); ++i)
    if (fit.constants()[i].name == "tuned attention share") {
      EXPECT_EQ(factors[i], 0);
    }
}

// Memory is fitted by the same means.
TEST(LeftOut, memory_has_a_target) {
  const PricedCase run = runs(1, 1).front();
  EXPECT_EQ(memory_target().predicted(run.published, run.layout), static_cast<double>(run.price->memory_bytes));
  EXPECT_EQ(time_target().predicted(run.published, run.layout), run.price->step_seconds);
}

// Of source a each row is in the range of b, of b none in that of a, which counts as much.
TEST(LeftOut, intervals_are_judged_by_other_sources) {
  std::vector<KindError> errors;
  for (int i = 0; i < 100; ++i) {
    errors.push_back({"kind", "a", 1});
    errors.push_back({"kind", "b", i < 50 ? 0.5 : 2});
  }
  const std::vector<KindInterval> kinds = kind_intervals(errors, 0.03);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].rows, 200u);
  EXPECT_EQ(kinds[0].sources, 2u);
  EXPECT_EQ(kinds[0].low, 0.5);
  EXPECT_EQ(kinds[0].high, 2);
  EXPECT_EQ(kinds[0].held, 0.5);
  EXPECT_EQ(kinds[1].held, 0.5);
  EXPECT_EQ(kind_intervals({{"kind", "a", 1}}, 0.03)[0].held, 0) << "no other source holds it";
}

// Differences below 10 % are right half of the time, those beyond it always: the share where 9 of 10 are right.
TEST(LeftOut, pairs_tell_how_far_predictions_must_differ) {
  std::vector<LayoutPair> pairs;
  for (int i = 0; i < 100; ++i) {
    pairs.push_back({"a", 0.1 + 0.001 * i, true});
    pairs.push_back({"a", 0.001 * i, i % 2 == 0});
  }
  EXPECT_NEAR(resolution_of(pairs), 0.075, 0.003);
  std::vector<LayoutPair> of_rows;
  add_pairs({{"a", "x", 1.2, 3}, {"a", "y", 1, 2}, {"a", "y", 1.1, 2}}, of_rows);
  ASSERT_EQ(of_rows.size(), 2u) << "the same layout twice is no pair";
  EXPECT_NEAR(of_rows[0].predicted_share, 0.2, 1e-9);
  EXPECT_TRUE(of_rows[0].in_order);
}

}  // namespace
}  // namespace espalier
