// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "diagnosis/diagnose.hpp"
#include "diagnosis/report.hpp"
#include "io/trace_file.hpp"
#include "planning/markup.hpp"
#include "tests/diagnosis/not_finite.hpp"
#include "tests/io/support.hpp"

namespace {

using namespace espalier;
using test::TemporaryDirectory;
using test::write_bytes;
using testing::HasSubstr;
using testing::Not;

StepTimes times_of(Index step, double seconds) {
  StepTimes times;
  times.step = step;
  times.step_seconds = seconds;
  times.seconds[Phase::forward] = 0.3 * seconds;
  times.seconds[Phase::backward] = 0.6 * seconds;
  times.seconds[Phase::bubble] = 0.1 * seconds;
  return times;
}

// Steps of 0.1 s, but for the first, of 1 s; 64 tokens each; memory of 60 bytes.
RecordedRun run_of(Index num_steps, int num_ranks) {
  RecordedRun run;
  run.directory = "/runs/mine";
  run.record.state = "completed";
  run.record.host = "node7";
  run.record.starts = 1;
  run.setup.shape = {.vocab_size = 256,
                     .max_sequence_length = 8,
                     .num_layers = 2,
                     .hidden_size = 16,
                     .num_heads = 2,
                     .ffn_hidden_size = 64};
  run.setup.mesh = make_layout(num_ranks, 1, 1, num_ranks);
  run.setup.global_batch_size = 8;
  run.setup.micro_batch_size = 2;
  run.setup.sequence_length = 8;
  for (Index step = 1; step <= num_steps; ++step) {
    RecordedStep line;
    line.loss = 6 / std::sqrt(static_cast<double>(step));
    line.learning_rate = 1e-3;
    line.gradient_norm = 2;
    line.tokens = 64 * step;
    line.tokens_per_second = 640;
    line.mfu = 0.25;
    line.times = times_of(step, step == 1 ? 1.0 : 0.1);
    line.memory_peak.bytes = {10, 20, 30};
    if (step % 10 == 0)
      line.validation_loss = line.loss + 0.1;
    run.steps.push_back(line);
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    run.ranks.emplace_back();
    for (const RecordedStep& step : run.steps)
      run.ranks.back().push_back(step.times);
  }
  return run;
}

bool has_card(const std::string& html, const std::string& id) {
  return html.find("id=\"" + id + "\"") != std::string::npos;
}

// A run that ended in order and has learned nothing is not green, and its first card says why.
TEST(Report, says_at_its_head_what_has_spoilt_the_run) {
  RecordedRun run = run_of(100, 1);
  const std::string green = "class=\"state completed\"";
  const std::string healthy = report_html(run);
  EXPECT_THAT(healthy, HasSubstr(green));
  for (std::size_t i = 1; i < 100; ++i)
    run.steps[i].loss = 99 - 0.9 * static_cast<double>(i);
  const std::string html = report_html(run);
  EXPECT_THAT(html, Not(HasSubstr(green)));
  EXPECT_THAT(html, HasSubstr("class=\"state failed\">diverged</span>"));
  EXPECT_LT(html.find("id=\"findings\""), html.find("id=\"loss\""));
  EXPECT_LT(html.find("the training diverges"), html.find("class=\"tiles\"")) << "before all figures";
}

TEST(Report, holds_what_diagnose_finds) {
  RecordedRun run = run_of(100, 2);
  for (RecordedStep& step : run.steps)
    step.times.seconds[Phase::data] = 0.05;
  for (auto& rank : run.ranks)
    for (StepTimes& times : rank)
      times.seconds[Phase::data] = 0.05;
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_FALSE(diagnosis.findings.empty());
  const std::string html = report_html(run);
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_THAT(html, HasSubstr(html_escaped(finding.title)));
    for (const Change& change : finding.changes)
      EXPECT_THAT(html, HasSubstr(html_escaped(change.setting)));
  }
}

TEST(Report, marks_starts_and_changes_of_the_config) {
  RecordedRun run = run_of(100, 1);
  run.starts = {{.first_step = 1, .changes = {}},
                {.first_step = 41, .changes = {"optimizer.learning_rate: 1 (was <3>)"}}};
  const std::string html = report_html(run);
  EXPECT_THAT(html, HasSubstr("step 41: a new start, optimizer.learning_rate: 1 (was &lt;3&gt;)"));
  std::size_t num_marks = 0;
  for (std::size_t at = 0; (at = html.find("class=\"mark-line\"", at)) != std::string::npos; ++at)
    ++num_marks;
  EXPECT_EQ(num_marks, 5u) << "loss twice, rate, norm, throughput; none of the first start";
}

TEST(Report, has_a_card_for_all_that_the_run_holds) {
  const std::string html = report_html(run_of(100, 4));
  for (const char* const id : {"loss", "learning-rate", "gradient-norm", "throughput", "phases", "ranks", "memory"})
    EXPECT_TRUE(has_card(html, id)) << id;
  EXPECT_FALSE(has_card(html, "loss-scale"));
  EXPECT_FALSE(has_card(html, "timeline"));
  for (const char* const text :
       {"<h1>mine", "completed", "2 layers, hidden 16, 2 heads", "tensor 1 x data 1 x pipeline 4, 1f1b",
        "8 sequences of 8 tokens, 4 micro-batches of 2", "node7", "25.0 %", "run.trace_steps"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_THAT(html, HasSubstr("<b>100 ms</b>"));  // the first step counts for nothing
  EXPECT_THAT(html, HasSubstr("step 100, from 6"));
  EXPECT_THAT(html, HasSubstr("the lowest so far"));
  EXPECT_THAT(html, HasSubstr("rank 3, backward: 60 ms (60.0 %)"));
  EXPECT_THAT(html, HasSubstr("optimizer: 30 B (50.0 %)"));
}

TEST(Report, compares_with_the_prediction) {
  RecordedRun run = run_of(50, 2);
  for (RecordedStep& step : run.steps)
    step.memory_peak.bytes = {10, 20, 30, 0, 17};
  run.prediction.emplace();
  run.prediction->step_seconds = 0.08;
  run.prediction->source = "calibration of node7";
  for (int stage = 0; stage < 2; ++stage) {
    RunPrediction::Stage& predicted = run.prediction->stages.emplace_back();
    predicted.seconds = times_of(0, 0.08).seconds;
    predicted.memory.bytes = {10, 20, 20};
  }
  run.record.details["memory"] = {
      {"peak_bytes", 6000}, {"predicted_bytes", 5000}, {"library_bytes", 5}, {"library_bytes_of_rank_0", 7}};
  const std::string html = report_html(run);
  for (const char* const text :
       {"predicted 80 ms (+25.0 %)", "calibration of node7", "stage 1 predicted, backward: 48 ms (60.0 %)",
        "stage 0 predicted, optimizer: 20 B (40.0 %)", "rank 0, workspace: 10 B (14.3 %)",
        "Fullest rank: 5.9 KiB at its peak, predicted 4.9 KiB (+20.0 %)"})
    EXPECT_THAT(html, HasSubstr(text));
}

TEST(Report, a_long_run_of_many_ranks_stays_small) {
  RecordedRun run = run_of(20000, 1);
  run.setup.mesh = make_layout(200, 1, 200, 1);
  run.ranks.assign(200, {times_of(1, 0.1), times_of(2, 0.1)});
  run.ranks[150] = {times_of(1, 0.1), times_of(2, 0.2)};  // works most
  run.steps[12345].loss = 77;
  const std::string html = report_html(run);
  EXPECT_LT(html.size(), std::size_t{1} << 20);
  EXPECT_THAT(html, HasSubstr("data-y=\"0 80\""));  // the spike is there
  EXPECT_THAT(html, HasSubstr("64 of 200 ranks"));
  EXPECT_THAT(html, HasSubstr("rank 150,"));
}

TEST(Report, draws_the_last_step_that_all_ranks_traced) {
  const TemporaryDirectory directory;
  RecordedRun run = run_of(10, 2);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<TimelineEvent> events;
    for (const Index step : {4, 5, 6})
      if (rank == 0 || step < 6)
        events.push_back({.name = fmt::format("F{}", step),
                          .category = "forward",
                          .microbatch = 0,
                          .begin = static_cast<double>(step),
                          .end = static_cast<double>(step) + 0.5,
                          .step = step});
    write_trace(directory.path(), rank, "rank", events);
    run.traces.push_back(directory / fmt::format("rank-{:05}.json", rank));
  }
  std::string html = report_html(run);
  EXPECT_TRUE(has_card(html, "timeline"));
  EXPECT_THAT(html, HasSubstr("<title>F5: 500 ms"));
  EXPECT_THAT(html, Not(HasSubstr("<title>F6")));
  run.traces[0].clear();  // it left none: the others are drawn
  EXPECT_THAT(report_html(run), HasSubstr("1 of 2 ranks"));
  std::filesystem::remove(run.traces[1]);
  html = report_html(run);
  EXPECT_FALSE(has_card(html, "timeline"));
  EXPECT_THAT(html, HasSubstr("the timeline: "));
}

TEST(Report, an_empty_run_and_one_of_one_step_say_so) {
  RecordedRun empty = run_of(0, 1);
  empty.record.state = "failed";
  empty.record.cause = "what: out of memory <here>";
  empty.gaps = {"no metrics.jsonl: the run ended before its first step"};
  std::string html = report_html(empty);
  EXPECT_THAT(html, HasSubstr("no step was recorded"));
  EXPECT_THAT(html, HasSubstr("out of memory &lt;here&gt;"));
  EXPECT_THAT(html, HasSubstr("before its first step"));
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  html = report_html(run_of(1, 2));
  EXPECT_THAT(html, HasSubstr("only one step was recorded"));
  EXPECT_TRUE(has_card(html, "ranks"));
}

TEST(Report, numbers_that_are_not_finite_are_named_not_drawn) {
  RecordedRun run = run_of(30, 1);
  run.steps[20].loss = not_a_number;
  run.steps[21].gradient_norm = infinity;
  run.steps[22].times.step_seconds = infinity;
  run.steps[22].tokens_per_second = 0;
  run.steps[23].times.seconds[Phase::backward] = not_a_number;
  run.steps[29].validation_loss = not_a_number;
  run.steps[29].loss = not_a_number;
  run.steps[25].loss_scale = 0.5;
  const std::string html = report_html(run);
  EXPECT_THAT(html, HasSubstr("Not finite at 2 steps"));
  EXPECT_THAT(html, HasSubstr("<b>not a number</b>"));
  EXPECT_TRUE(has_card(html, "loss-scale"));
  for (const char* const broken : {"nan,", ",nan", "inf,", ",inf", "\"nan", "\"inf", "nan%", "inf%"})
    EXPECT_THAT(html, Not(HasSubstr(broken)));
  for (RecordedStep& step : run.steps)
    step.loss = not_a_number;
  EXPECT_THAT(report_html(run), HasSubstr("Training loss: no finite value"));
}

TEST(Report, names_from_files_are_text) {
  RecordedRun run = run_of(3, 1);
  run.directory = "/runs/<script>alert(1)</script>";
  run.record.host = "\"><img src=x>";
  run.record.details["facts"] = {{"<b>", "<i>"}, {"table", {{"x", 1}}}, {"ranks", 4}, {"gemm_flops", 2.5e11}};
  run.record.state = "running";
  run.record.pid = 4711;
  run.life = Life::gone;
  const std::string html = report_html(run);
  for (const char* const markup : {"<script>alert", "<img", "<b><", "<i>"})
    EXPECT_THAT(html, Not(HasSubstr(markup)));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("<dt>gemm flops</dt><dd>250G</dd>"));
  EXPECT_THAT(html, HasSubstr("process 4711 on &quot;&gt;&lt;img src=x&gt; is gone"));
}

TEST(Report, details_of_another_kind_are_passed_over) {
  RecordedRun run = run_of(3, 1);
  for (const char* const details :
       {"[]", "7", R"({"memory": 3, "facts": "x"})", R"({"memory": {"peak_bytes": "x"}})"}) {
    run.record.details = nlohmann::json::parse(details);
    EXPECT_TRUE(has_card(report_html(run), "memory")) << details;
  }
}

TEST(Report, at_the_end_of_a_run_fails_nothing) {
  const TemporaryDirectory directory;
  EXPECT_THAT(write_report_at_end(directory / "no-such-run"), HasSubstr("report.html could not be written"));
  EXPECT_THAT(write_report_at_end(directory.path()), HasSubstr("not the directory of a run"));
  write_bytes(directory / "metrics.jsonl", "");
  std::filesystem::resize_file(directory / "metrics.jsonl", 300 << 20);  // a hole: takes no space
  EXPECT_THAT(write_report_at_end(directory.path()), HasSubstr("espalier report "));
}

}  // namespace
