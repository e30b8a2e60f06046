// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/world.hpp"
#include "training/loop/prediction_check.hpp"

namespace espalier::test {
namespace {

// A step cannot be faster than its matmuls at the machine's rate: then the rate was measured too low.
TEST(PredictionCheck, AGemmRateThatStepsExceedIsTold) {
  const RunConfig config = parse_run_config("", "test", {"data.train=[\"any\"]", "run.steps=1"}, world().size());
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  const auto notes_at = [&](double gemm_rate) {
    PredictionCheck check(config, layout, mesh, gemm_rate);
    StepReport report;
    report.step_seconds = 1;
    check.add(report);
    check.add(report);
    return check.compare().notes;
  };
  const auto is_told = [](const std::vector<std::string>& notes) {
    return std::ranges::any_of(
        notes, [](const std::string& note) { return note.find("gemm_fraction is") != std::string::npos; });
  };
  EXPECT_FALSE(is_told(notes_at(1e15)));
  EXPECT_EQ(is_told(notes_at(1)), world().rank() == 0);
}

}  // namespace
}  // namespace espalier::test
