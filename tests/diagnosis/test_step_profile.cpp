// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/diagnose.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::SimulatedRun;
using testing::HasSubstr;
using testing::Not;

namespace {

// Of the steps looked at: the first of a launch is none of them.
TEST(StepProfile, has_its_shares_of_the_gemm_rate_and_the_peak) {
  SimulatedRun simulated(1, 2, 1, 8, {2});
  EXPECT_THAT(diagnosis_text(simulated.run, diagnose(simulated.run)), Not(HasSubstr("MFU")));
  for (StepRecord& step : simulated.run.steps) {
    const bool is_first = &step == &simulated.run.steps.front();
    step.tokens_per_second = is_first ? 1 : 4096;
    step.gemm_fraction = is_first ? 0.01 : 0.64;
    step.mfu = is_first ? 0.02 : 0.43;
  }
  const Diagnosis diagnosis = diagnose(simulated.run);
  EXPECT_THAT(diagnosis_text(simulated.run, diagnosis), HasSubstr("  4.1k tokens/s, GEMM fraction 64 %, MFU 43 %\n"));
  const auto step = diagnosis_data(simulated.run, diagnosis)["step"];
  EXPECT_EQ(step["gemm_fraction"], 0.64);
  EXPECT_EQ(step["mfu"], 0.43);
}

}  // namespace
