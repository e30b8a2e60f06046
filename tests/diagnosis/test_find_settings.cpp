// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "diagnosis/diagnose.hpp"
#include "tests/diagnosis/named_findings.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::first;
using espalier::test::SimulatedRun;
using testing::HasSubstr;

namespace {

// Choices that make every rank slow by themselves, so that no comparison among ranks shows them.
TEST(FindSettings, MoreThreadsThanCoresAndWideNumbers) {
  SimulatedRun simulated(1, 1, 1, 4, {2});
  RecordedRun& run = simulated.run;
  run.config.emulate.forward = 0;
  EXPECT_TRUE(diagnose(run).findings.empty());
  run.facts.threads = run.facts.host_threads = 4;
  run.facts.host_cores = 2;
  EXPECT_EQ(first(diagnose(run)).cause, Cause::crowded_cores);
  EXPECT_THAT(first(diagnose(run)).title, HasSubstr("4 threads share 2 cores"));
  EXPECT_THAT(first(diagnose(run)).changes.front().setting, HasSubstr("OMP_NUM_THREADS=2"));
  run.facts.host_threads = 2;
  run.config.layout.precision = Precision::fp64;
  EXPECT_EQ(first(diagnose(run)).cause, Cause::precision);
  EXPECT_EQ(first(diagnose(run)).changes.front().setting, "precision.compute = \"fp32\"");
  run.config.layout.precision = Precision::fp32;
  EXPECT_TRUE(diagnose(run).findings.empty()) << "16 bits are no faster here";
  run.facts.fast_16_bits = true;
  EXPECT_EQ(first(diagnose(run)).changes.front().setting, "precision.compute = \"bf16\"");
}

// Beside a run in fp32, what fp64 costs is the reason, and not that it computes longer than predicted.
TEST(FindSettings, WideNumbersExplainTheLostSpeed) {
  SimulatedRun before(1, 1, 1, 4, {2});
  SimulatedRun after(1, 1, 1, 4, {2}, {.slow_rank = 0, .slow_factor = 2});
  for (SimulatedRun* each : {&before, &after})
    each->run.config.emulate.forward = 0;
  after.run.predicted_time.reset();  // fp64 has none
  after.run.config.layout.precision = Precision::fp64;
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  ASSERT_TRUE(diagnosis.comparison && diagnosis.comparison->explained_by);
  EXPECT_EQ(*diagnosis.comparison->explained_by, Cause::precision);
}

// They exchange messages for every micro-batch: more of them do not help, less sharding does.
TEST(FindSettings, ExposedMessagesOfZero2And3) {
  const SimulatedRun simulated(1, 4, 2, 8, {2, 2}, {.reduction = 0.3});
  const double microbatches = static_cast<double>(simulated.run.config.layout.num_microbatches());
  ASSERT_GT(microbatches, 1);
  using Gains = std::vector<std::pair<std::string, double>>;  // shares of the exposed seconds
  const auto gains = [&](int zero_stage, bool keep_gathered) {
    RecordedRun run = simulated.run;
    run.config.layout.zero_stage = zero_stage;
    run.config.layout.keep_gathered = keep_gathered;
    const Diagnosis diagnosis = diagnose(run);
    Gains found;
    for (const Change& change : first(diagnosis).changes)
      found.emplace_back(change.setting, change.gain_seconds / first(diagnosis).seconds);
    return found;
  };
  const auto expect = [](const Gains& got, const Gains& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, wanted[i].first);
      EXPECT_NEAR(got[i].second, wanted[i].second, 1e-9) << got[i].first;
    }
  };
  const double once_gathered = microbatches + 1;
  expect(gains(2, false), {{"parallel.zero_stage = 1", 1 - 2 / once_gathered}});
  expect(gains(3, true), {{"parallel.zero_stage = 1", 1 - 2 / once_gathered}});
  expect(gains(3, false), {{"parallel.keep_gathered = true", 1 - once_gathered / (3 * microbatches)},
                           {"parallel.zero_stage = 1", 1 - 2 / (3 * microbatches)}});
}

}  // namespace
