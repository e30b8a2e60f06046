// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "diagnosis/find_stability.hpp"
#include "tests/diagnosis/loss_runs.hpp"

using namespace espalier;
using espalier::test::calm_run;
using espalier::test::run_of_bytes;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

// From `from` to `to`, with a little noise.
std::vector<double> course(std::size_t count, double from, double to) {
  std::vector<double> losses(count);
  for (std::size_t i = 0; i < count; ++i)
    losses[i] = from + (to - from) * static_cast<double>(i) / static_cast<double>(count) +
                0.02 * std::sin(7.0 * static_cast<double>(i));
  return losses;
}

std::vector<double> operator+(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Finding only_finding(const RecordedRun& run) {
  const std::vector<Finding> findings = find_instability(run);
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? Finding{.title = "nothing"} : findings.front();
}

// Of whatever shape: nobody is to go on with such weights, and each such run says so at its head.
TEST(FindDivergence, EachWayNotToLearnHasAVerdict) {
  const std::vector<double> falls = course(100, 5.5, 2.5);
  const struct {
    const char* what;
    std::vector<double> losses;
    Cause cause;
    const char* verdict;
    const char* says;
  } cases[] = {
      {"explodes at once, ends at frequencies", course(1, 5.5, 5) + course(40, 70, 6) + course(160, 4, 3.4),
       Cause::divergence, "diverged", "above ln(256) = 5.545, the loss of guessing"},
      {"explodes at once, and stays above guessing", course(1, 5.5, 5) + course(100, 7, 7), Cause::divergence,
       "diverged", "above ln(256)"},
      {"explodes in the middle for good", falls + course(100, 40, 20), Cause::divergence, "diverged", "diverge"},
      {"rises again", falls + course(150, 2.5, 3.2), Cause::divergence, "diverged", "the loss rises again"},
      {"stands where it began", course(200, 5.52, 5.5), Cause::divergence, "did not learn", "hardly falls"},
      {"comes to frequencies and no further", course(50, 5.5, 3.45) + course(150, 3.42, 3.41), Cause::plateau,
       "did not learn", "no more than token frequencies"},
  };
  for (const auto& each : cases) {
    RecordedRun run = run_of_bytes(each.losses);
    const std::vector<Finding> findings = find_instability(run);
    const auto found = std::ranges::find(findings, each.cause, &Finding::cause);
    ASSERT_NE(found, findings.end()) << each.what;
    EXPECT_EQ(found->verdict, each.verdict) << each.what;
    EXPECT_THAT(found->title, HasSubstr(each.says)) << each.what;
    EXPECT_FALSE(found->changes.empty()) << each.what;
  }
  EXPECT_TRUE(find_instability(run_of_bytes(falls + course(100, 2.5, 2.3))).empty());
  EXPECT_TRUE(find_instability(run_of_bytes(course(100, 5.5, 3.5))).empty()) << "still falling";
}

TEST(FindDivergence, DivergenceThatWasOvercomeIsToldWithoutAVerdict) {
  const Finding finding = only_finding(run_of_bytes(course(1, 5.5, 5.5) + course(9, 20, 8) + course(190, 5, 1.5)));
  EXPECT_EQ(finding.cause, Cause::divergence);
  EXPECT_EQ(finding.verdict, "");
}

// The cause is what config and curves say, not always the rate.
TEST(FindDivergence, CausesOfADivergenceAreThoseThatTheConfigHas) {
  const RecordedRun healthy = run_of_bytes(course(1, 5.5, 5.5) + course(40, 70, 6) + course(160, 4, 3.4));
  const auto told = [&](const std::function<void(RecordedRun&)>& change) {
    RecordedRun run = healthy;
    change(run);
    const Finding finding = find_instability(run).front();
    std::string text;
    for (const std::string& evidence : finding.evidence)
      text += evidence + "\n";
    for (const Change& each : finding.changes)
      text += each.setting + "\n";
    return text;
  };
  EXPECT_THAT(told([](RecordedRun& run) {
                for (StepRecord& step : run.steps)
                  step.learning_rate = 1;
                run.config.optimizer.learning_rate = 1;
              }),
              testing::ContainsRegex("a learning rate of 1 is [0-9]+ times what is usual"));
  EXPECT_THAT(told([](RecordedRun& run) { run.config.optimizer.warmup_steps = 0; }), HasSubstr("there is no warm-up"));
  EXPECT_THAT(told([](RecordedRun& run) { run.config.optimizer.clip_grad_norm = 0; }),
              HasSubstr("gradients are not clipped"));
  EXPECT_THAT(told([](RecordedRun& run) { run.config.optimizer.adamw.beta2 = 0; }), HasSubstr("optimizer.beta2 = 0 "));
  EXPECT_THAT(told([](RecordedRun& run) { run.config.optimizer.adamw.weight_decay = 1000; }),
              HasSubstr("weight decay takes"));
  for (const char* const absent : {"usual", "no warm-up", "not clipped", "beta2", "weight decay"})
    EXPECT_THAT(told([](RecordedRun&) {}), Not(HasSubstr(absent)));
}

// What keeps a loss where it is must not be cured by an even lower rate.
TEST(FindDivergence, LossThatStandsStillIsNotAlwaysTooHighARate) {
  RecordedRun run = run_of_bytes(course(200, 5.52, 5.5));
  const auto first_change = [&] { return only_finding(run).changes.front().setting; };
  for (StepRecord& step : run.steps)
    step.learning_rate = 1e-7;
  run.config.optimizer.learning_rate = 1e-7;
  EXPECT_THAT(first_change(), StartsWith("optimizer.learning_rate = 0.00"));
  EXPECT_THAT(only_finding(run).evidence.back(), HasSubstr("times below what is usual"));
  for (StepRecord& step : run.steps)
    step.learning_rate = 1e-3;
  run.config.optimizer.learning_rate = 1e-3;
  run.config.optimizer.clip_grad_norm = 1e-8;
  EXPECT_THAT(first_change(), StartsWith("optimizer.clip_grad_norm = 1.0"));
  run.config.optimizer.clip_grad_norm = 1;
  run.config.optimizer.adamw.eps = 1;
  EXPECT_THAT(first_change(), StartsWith("optimizer.eps"));
  run.config.optimizer.adamw.eps = 1e-8;
  run.facts.unigram_loss = 5.54;
  EXPECT_THAT(first_change(), HasSubstr("data.train"));
}

// A step in which a run ends has no line: only run.json knows of it.
TEST(FindDivergence, RunThatEndedInADivergenceHasItsCauses) {
  RecordedRun run = run_of_bytes({5.5, 5.4});
  run.record.state = RunState::failed;
  run.record.exit_code = static_cast<int>(ExitCode::numerical);
  run.config.optimizer.clip_grad_norm = 0;
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.verdict, "diverged");
  EXPECT_FALSE(finding.changes.empty());
}

// Every number of a line counts, but for gradients of fp16, whose overflow the loss scale is there for.
TEST(FindDivergence, AnyNumberThatIsNoneIsFound) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  RecordedRun run = calm_run(50);
  run.steps.back().validation_loss = nan;
  EXPECT_EQ(only_finding(run).title, "the validation loss is nan at step 50");
  run.steps[20].gradient_norm = nan;
  EXPECT_EQ(only_finding(run).title, "the gradient norm is nan at step 21");
  EXPECT_EQ(only_finding(run).verdict, "not finite");
  run.config.layout.precision = Precision::fp16;
  run.config.precision.loss_scale.initial = run.config.precision.loss_scale.minimum = 0.5;
  EXPECT_EQ(only_finding(run).title, "the validation loss is nan at step 50");
}

TEST(FindDivergence, ValidationFarAboveTraining) {
  RecordedRun run = run_of_bytes(course(300, 5.5, 1.5));
  for (std::size_t i = 49; i < 300; i += 50)
    run.steps[i].validation_loss = std::max(run.steps[i].loss + 0.05, 2.5 + 0.003 * static_cast<double>(i));
  for (StepRecord& step : run.steps)
    step.tokens = 1000 * step.times.step;
  run.facts.train_tokens = 25000;
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.cause, Cause::overfitting);
  EXPECT_THAT(finding.title, HasSubstr("memorizes"));
  EXPECT_THAT(finding.evidence.front(), HasSubstr("was read 12 times"));
  run.facts.train_tokens = 1000000;
  for (StepRecord& step : run.steps)
    if (step.validation_loss)
      step.validation_loss = step.loss + 1;
  EXPECT_THAT(only_finding(run).title, HasSubstr("above training"));
  EXPECT_THAT(only_finding(run).evidence.front(), HasSubstr("another kind"));
  for (StepRecord& step : run.steps)
    if (step.validation_loss)
      step.validation_loss = step.loss + 0.1;
  EXPECT_TRUE(find_instability(run).empty());
}

TEST(FindDivergence, RunThatEndsInsideItsWarmup) {
  RecordedRun run = run_of_bytes(course(100, 5.5, 4));
  run.config.run.steps = 100;
  run.config.optimizer.warmup_steps = 1000;
  for (StepRecord& step : run.steps)
    step.learning_rate = 1e-6 * static_cast<double>(step.times.step);
  EXPECT_EQ(only_finding(run).cause, Cause::learning_rate);
  run.config.optimizer.warmup_steps = 10;
  EXPECT_TRUE(find_instability(run).empty());
}

// A run that follows the advice on its warm-up is not told the contrary, however short it is.
TEST(FindDivergence, AdviceOnTheWarmupHolds) {
  for (const Index steps : {1, 2, 8, 30, 100, 400, 100000}) {
    RecordedRun run = run_of_bytes(course(40, 5.5, 4));
    run.config.run.steps = steps;
    run.config.optimizer.warmup_steps = usual_warmup_steps(run);
    EXPECT_GE(run.config.optimizer.warmup_steps, 1);
    for (StepRecord& step : run.steps)
      step.learning_rate = 1e-2 * run.config.optimizer.learning_rate;
    Finding finding;
    add_causes_of_instability(run, 1, finding);
    add_causes_of_standstill(run, finding);
    for (const Change& change : finding.changes)
      EXPECT_THAT(change.setting, Not(HasSubstr("warmup_steps"))) << steps;
  }
  RecordedRun run = run_of_bytes(course(40, 5.5, 4));
  run.config.run.steps = 40;
  run.config.optimizer.clip_grad_norm = 1;
  EXPECT_THAT(calmer(run).setting, Not(HasSubstr("longer"))) << "half of the run warms up";
  run.config.run.steps = 400;
  EXPECT_THAT(calmer(run).setting, HasSubstr("or a longer optimizer.warmup_steps (now 20)"));
}

}  // namespace
