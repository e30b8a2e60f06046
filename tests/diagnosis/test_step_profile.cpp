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
  for (StepRecord& step : simulated.run.steps) {  // 1 to 20, of which 2 to 20 are looked at
    const auto number = static_cast<double>(step.times.step);
    step.tokens_per_second = 100 * number;
    step.gemm_fraction = 0.02 * number;
    step.mfu = 0.01 * number;
  }
  const Diagnosis diagnosis = diagnose(simulated.run);
  EXPECT_THAT(diagnosis_text(simulated.run, diagnosis), HasSubstr("  1.1k tokens/s, GEMM fraction 22 %, MFU 11 %\n"));
  const auto step = diagnosis_data(simulated.run, diagnosis)["step"];
  EXPECT_DOUBLE_EQ(step["gemm_fraction"].get<double>(), 0.22);
  EXPECT_DOUBLE_EQ(step["mfu"].get<double>(), 0.11);
}

}  // namespace
