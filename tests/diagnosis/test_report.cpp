// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "diagnosis/diagnose.hpp"
#include "diagnosis/report.hpp"
#include "diagnosis/report_data.hpp"
#include "io/records/trace_file.hpp"
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
  run.record.state = RunState::completed;
  run.record.host = "node7";
  run.record.starts = 1;
  run.config.model.shape = {.vocab_size = 256,
                            .max_sequence_length = 8,
                            .num_layers = 2,
                            .hidden_size = 16,
                            .num_heads = 2,
                            .ffn_hidden_size = 64};
  run.config.layout = {.pipeline = num_ranks, .micro_batch = 2, .global_batch = 8, .precision = Precision::fp32};
  run.config.layout.layers.assign(static_cast<std::size_t>(num_ranks), 1);
  run.config.sequence_length = 8;
  for (Index step = 1; step <= num_steps; ++step) {
    StepRecord line;
    line.loss = 6 / std::sqrt(static_cast<double>(step));
    line.learning_rate = 1e-3;
    line.gradient_norm = 2;
    line.tokens = 64 * step;
    line.tokens_per_second = 640;
    line.gemm_fraction = 0.25;
    line.mfu = 0.125;
    line.times = times_of(step, step == 1 ? 1.0 : 0.1);
    line.memory_peak.bytes = {10, 20, 30};
    if (step % 10 == 0)
      line.validation_loss = line.loss + 0.1;
    run.steps.push_back(line);
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    run.ranks.emplace_back();
    for (const StepRecord& step : run.steps)
      run.ranks.back().push_back(step.times);
  }
  return run;
}

using Json = nlohmann::ordered_json;

// A run that ended in order and has learned nothing has a verdict, and its cause says why.
TEST(Report, says_at_its_head_what_has_spoilt_the_run) {
  RecordedRun run = run_of(100, 1);
  EXPECT_EQ(report_data(run)["verdict"], "");
  for (std::size_t i = 1; i < 100; ++i)
    run.steps[i].loss = 99 - 0.9 * static_cast<double>(i);
  const Json data = report_data(run);
  EXPECT_EQ(data["verdict"], "diverged");
  EXPECT_THAT(data["cause"].get<std::string>(), HasSubstr("the training diverges"));
}

TEST(Report, holds_what_diagnose_finds) {
  RecordedRun run = run_of(100, 2);
  for (StepRecord& step : run.steps)
    step.times.seconds[Phase::data] = 0.05;
  for (auto& rank : run.ranks)
    for (StepTimes& times : rank)
      times.seconds[Phase::data] = 0.05;
  const Diagnosis diagnosis = diagnose(run);
  ASSERT_FALSE(diagnosis.findings.empty());
  const Json data = report_data(run);
  EXPECT_EQ(data["findings"], diagnosis_data(run, diagnosis)["findings"]);
  EXPECT_EQ(data["findings"][0]["title"], diagnosis.findings[0].title);
  EXPECT_EQ(data["findings"][0]["heading"], heading(concern_of(diagnosis.findings[0].cause)));
}

TEST(Report, names_restarts_and_changes_of_the_config) {
  RecordedRun run = run_of(100, 1);
  run.launches = {{.first_step = 1, .changes = {}},
                  {.first_step = 41, .changes = {"optimizer.learning_rate: 1 (was <3>)"}}};
  const Json restarts = report_data(run)["restarts"];
  ASSERT_EQ(restarts.size(), 1u) << "none of the first start";
  EXPECT_EQ(restarts[0]["first_step"], 41);
  EXPECT_EQ(restarts[0]["changes"], Json({"optimizer.learning_rate: 1 (was <3>)"}));
}

std::string fact(const Json& data, const std::string& name) {
  for (const Json& each : data["facts"])
    if (each["name"] == name)
      return each["value"].dump();
  return "none";
}

TEST(Report, has_data_of_all_that_the_run_holds) {
  const Json data = report_data(run_of(100, 4));
  for (const char* const part : {"series", "memory", "phases", "ranks", "head"})
    EXPECT_FALSE(data[part].is_null()) << part;
  EXPECT_TRUE(data["timeline"].is_null());
  EXPECT_FALSE(data["series"].contains("loss_scale"));
  EXPECT_EQ(data["name"], "mine");
  EXPECT_EQ(data["state"], "completed");
  EXPECT_THAT(fact(data, "model"), HasSubstr("2 layers, hidden 16, 2 heads"));
  EXPECT_THAT(fact(data, "layout"), HasSubstr("tensor 1 x data 1 x pipeline 4, 1f1b"));
  EXPECT_THAT(fact(data, "batch"), HasSubstr("8 sequences of 8 tokens, 4 micro-batches of 2"));
  EXPECT_EQ(fact(data, "host"), "\"node7\"");
  EXPECT_THAT(data["gaps"].dump(), HasSubstr("run.trace_steps"));
  const Json& head = data["head"];
  EXPECT_EQ(head["step_seconds"]["measured"], 0.1) << "the first step counts for nothing";
  EXPECT_TRUE(head["step_seconds"]["predicted"].is_null());
  EXPECT_EQ(head["gemm_fraction"], 0.25);
  EXPECT_EQ(head["mfu"], 0.125);
  RecordedRun without_peak = run_of(100, 4);
  std::ranges::for_each(without_peak.steps, [](StepRecord& step) { step.mfu = 0; });
  EXPECT_TRUE(report_data(without_peak)["head"]["mfu"].is_null()) << "zeros are no MFU";
  EXPECT_EQ(head["tokens_per_second"], 640);
  EXPECT_EQ(head["loss"], Json({{"first", 6}, {"last", 0.6}}));
  EXPECT_EQ(head["last_step"], 100);
  EXPECT_EQ(head["validation_loss"]["is_lowest"], true);
  EXPECT_EQ(data["series"]["loss"].size(), 100u);
  EXPECT_EQ(data["series"]["loss"][99], Json({100, 0.6}));
  EXPECT_EQ(data["series"]["validation_loss"].size(), 10u);
  EXPECT_EQ(data["ranks"]["rows"][3]["rank"], 3);
  EXPECT_EQ(data["ranks"]["rows"][3]["stage"], 3);
  EXPECT_EQ(data["ranks"]["rows"][3]["seconds"]["backward"], 0.06);
  EXPECT_EQ(data["phases"]["seconds"]["backward"][99], 0.06);
  EXPECT_FALSE(data["phases"]["seconds"].contains("optimizer")) << "too small to see";
  EXPECT_EQ(data["memory"]["rank_0"]["optimizer"], 30);
}

TEST(Report, compares_with_the_prediction) {
  RecordedRun run = run_of(50, 2);
  for (StepRecord& step : run.steps)
    step.memory_peak.bytes = {10, 20, 30, 0, 17};
  run.predicted_time.emplace();
  run.predicted_time->step_seconds = 0.08;
  run.predicted_time->source = "calibration of node7";
  for (int stage = 0; stage < 2; ++stage) {
    run.predicted_time->stages.push_back(times_of(0, 0.08).seconds);
    run.predicted_memory.push_back({.bytes = {10, 20, 20}});
  }
  run.record.details = details_of(MeasuredMemory{
      .peak = {.bytes = {6000}}, .predicted = {.bytes = {5000}}, .library_bytes = 5, .library_bytes_of_rank_0 = 7});
  const Json data = report_data(run);
  EXPECT_EQ(data["head"]["step_seconds"], Json({{"measured", 0.1}, {"predicted", 0.08}}));
  EXPECT_EQ(fact(data, "prediction"), "\"calibration of node7\"");
  EXPECT_EQ(data["predicted"]["stages"].size(), 2u);
  EXPECT_NEAR(data["predicted"]["stages"][1]["backward"].get<double>(), 0.048, 1e-12);
  const Json& memory = data["memory"];
  EXPECT_EQ(memory["predicted"][0]["optimizer"], 20);
  EXPECT_EQ(memory["rank_0"]["workspace"], 10) << "without what libraries keep";
  EXPECT_EQ(memory["rank_0_total"], 77);
  EXPECT_EQ(memory["peak_bytes"], 6000);
  EXPECT_EQ(memory["predicted_bytes"], 5000);
  EXPECT_EQ(memory["library_bytes"], 5);
}

TEST(Report, a_long_run_of_many_ranks_stays_small) {
  RecordedRun run = run_of(20000, 1);
  run.config.layout.data = 200;
  run.ranks.assign(200, {times_of(1, 0.1), times_of(2, 0.1)});
  run.ranks[150] = {times_of(1, 0.1), times_of(2, 0.2)};  // works most
  run.steps[12345].loss = 77;
  EXPECT_LT(report_html(run).size(), std::size_t{1} << 20);
  const Json data = report_data(run);
  EXPECT_LE(data["series"]["loss"].size(), 3000u);
  EXPECT_THAT(data["series"]["loss"], testing::Contains(Json({12346, 77}))) << "the spike is there";
  EXPECT_EQ(data["phases"]["steps"].size(), 300u);
  EXPECT_EQ(data["ranks"]["num_ranks"], 200);
  EXPECT_EQ(data["ranks"]["rows"].size(), 64u);
  EXPECT_THAT(data["ranks"]["rows"], testing::Contains(testing::ResultOf(
                                         [](const Json& row) { return row["rank"].get<int>(); }, testing::Eq(150))));
}

TEST(Report, has_the_last_step_that_all_ranks_traced) {
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
  const Json timeline = report_data(run)["timeline"];
  EXPECT_EQ(timeline["step"], 5);
  EXPECT_EQ(timeline["rows"][1]["blocks"],
            Json::array({{{"kind", "forward"}, {"begin", 0}, {"end", 0.5}, {"name", "F5"}, {"microbatch", 0}}}));
  run.traces[0].clear();  // it left none: the others are drawn
  EXPECT_EQ(report_data(run)["timeline"]["rows"].size(), 1u);
  EXPECT_EQ(report_data(run)["timeline"]["num_ranks"], 2);
  std::filesystem::remove(run.traces[1]);
  const Json data = report_data(run);
  EXPECT_TRUE(data["timeline"].is_null());
  EXPECT_THAT(data["gaps"].dump(), HasSubstr("the timeline: "));
}

Json timeline_of(const std::vector<std::vector<TimelineEvent>>& ranks) {
  const TemporaryDirectory directory;
  RecordedRun run = run_of(3, static_cast<int>(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    write_trace(directory.path(), static_cast<int>(rank), "rank", ranks[rank]);
    run.traces.push_back(directory / fmt::format("rank-{:05}.json", rank));
  }
  return timeline_data(run);
}

std::vector<std::string> kinds_of(const Json& blocks) {
  std::vector<std::string> kinds;
  for (const Json& block : blocks)
    kinds.push_back(block["kind"]);
  return kinds;
}

TEST(Timeline, blocks_lie_where_their_time_is) {
  const Json rows = timeline_of(
      {{{.name = "F0", .category = "forward", .chunk = 0, .microbatch = 0, .begin = 10, .end = 10.5},
        {.name = "W0", .category = "backward", .chunk = 0, .microbatch = 0, .begin = 10.5, .end = 11}},
       {{.name = "B3", .category = "backward", .chunk = 1, .microbatch = 3, .begin = 11, .end = 14},
        {.name = "dp", .category = "data_comm", .begin = 12, .end = 14, .track = communication_track}}})["rows"];
  EXPECT_THAT(kinds_of(rows[0]["blocks"]), testing::ElementsAre("forward", "weight"));
  EXPECT_EQ(rows[0]["blocks"][1]["begin"], 0.5);
  EXPECT_THAT(kinds_of(rows[1]["blocks"]), testing::ElementsAre("backward odd", "data_comm"));
  EXPECT_EQ(rows[1]["blocks"][0]["begin"], 1);
  EXPECT_EQ(rows[1]["blocks"][0]["end"], 4);
  EXPECT_EQ(rows[1]["blocks"][0]["microbatch"], 3);
  EXPECT_FALSE(rows[1]["blocks"][0].contains("background"));
  EXPECT_EQ(rows[1]["blocks"][1]["background"], true);
}

TEST(Timeline, what_contains_lies_below_what_it_contains) {
  const Json rows = timeline_of({{{.name = "inner", .category = "tensor_comm", .begin = 0.2, .end = 0.6},
                                  {.name = "outer", .category = "forward", .begin = 0, .end = 1},
                                  {.name = "idle", .category = "bubble", .begin = 0.1, .end = 2}}})["rows"];
  EXPECT_THAT(kinds_of(rows[0]["blocks"]), testing::ElementsAre("bubble", "forward", "tensor_comm"));
}

// 64 ranks of 1000 operations: fewer blocks, and yet no time is lost.
TEST(Timeline, many_blocks_become_fewer) {
  std::vector<std::vector<TimelineEvent>> ranks(64);
  for (auto& events : ranks)
    for (int i = 0; i < 1000; ++i)
      events.push_back({.name = "F", .category = "forward", .microbatch = i, .begin = i * 1e-3, .end = (i + 1) * 1e-3});
  const Json timeline = timeline_of(ranks);
  std::size_t num_blocks = 0;
  for (const Json& row : timeline["rows"]) {
    num_blocks += row["blocks"].size();
    double seconds = 0;
    for (const Json& block : row["blocks"])
      seconds += block["end"].get<double>() - block["begin"].get<double>();
    EXPECT_NEAR(seconds, 1, 1e-3);
    EXPECT_GT(row["blocks"][0]["events"].get<int>(), 1);
  }
  EXPECT_LE(num_blocks, 3000u);
  EXPECT_GE(num_blocks, 64u);
  EXPECT_LT(timeline.dump().size(), 500000u);
}

TEST(Timeline, what_takes_no_time_has_no_block) {
  const Json rows = timeline_of({{{.name = "x", .category = "forward", .begin = 5, .end = 5}}})["rows"];
  EXPECT_TRUE(rows[0]["blocks"].empty());
}

TEST(Report, an_empty_run_and_one_of_one_step_say_so) {
  RecordedRun empty = run_of(0, 1);
  empty.record.state = RunState::failed;
  empty.record.cause = "what: out of memory <here>";
  empty.gaps = {"no metrics.jsonl: the run ended before its first step"};
  Json data = report_data(empty);
  for (const char* const part : {"head", "series", "memory", "phases", "ranks", "timeline"})
    EXPECT_TRUE(data[part].is_null()) << part;
  EXPECT_THAT(data["cause"].get<std::string>(), HasSubstr("out of memory <here>"));
  EXPECT_THAT(data["gaps"].dump(), HasSubstr("before its first step"));
  data = report_data(run_of(1, 2));
  EXPECT_THAT(data["gaps"].dump(), HasSubstr("only one step was recorded"));
  EXPECT_EQ(data["ranks"]["rows"].size(), 2u);
}

TEST(Report, numbers_that_are_not_finite_are_named) {
  RecordedRun run = run_of(30, 1);
  run.steps[20].loss = not_a_number;
  run.steps[21].gradient_norm = infinity;
  run.steps[22].times.step_seconds = infinity;
  run.steps[22].tokens_per_second = 0;
  run.steps[23].times.seconds[Phase::backward] = not_a_number;
  run.steps[24].gradient_norm = 1e200;
  run.steps[29].validation_loss = not_a_number;
  run.steps[29].loss = not_a_number;
  run.steps[25].loss_scale = 0.5;
  const Json data = report_data(run);
  EXPECT_EQ(data["series"]["loss"][20], Json({21, "not a number"}));
  EXPECT_EQ(data["series"]["gradient_norm"][21], Json({22, "infinite"}));
  EXPECT_EQ(data["series"]["gradient_norm"][24], Json({25, "1e+200"})) << "no axis holds it";
  EXPECT_EQ(data["head"]["loss"]["last"], "not a number");
  EXPECT_EQ(data["series"]["loss_scale"].size(), 30u);
  EXPECT_EQ(data["phases"]["seconds"]["backward"][23], 0);
  EXPECT_EQ(data["head"]["step_seconds"]["measured"], 0.1);
  EXPECT_EQ(number_data(-infinity), "-infinite");
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

TEST(Report, names_from_files_are_text) {
  const std::string harmless = report_html(run_of(3, 1));
  RecordedRun run = run_of(3, 1);
  run.directory = "/runs/<script>alert(1)<\\script>";
  run.record.host = "\"><img src=x></script><!--<script>";
  run.facts = {.program = "<b>", .cpu = "<i>", .ranks = 4, .gemm_flops = 2.5e11};
  run.record.started = "</SCRIPT >";
  run.record.pid = 4711;
  run.life = Life::gone;
  run.gaps = {"\xE2\x80\xA8 </script>"};
  const std::string html = report_html(run);
  for (const char* const markup : {"<script>alert", "<img", "<b>", "<i>", "</SCRIPT", "<!--<"})
    EXPECT_THAT(html, Not(HasSubstr(markup)));
  for (const char* const tag : {"<script", "</script", "<!--"})
    EXPECT_EQ(count(html, tag), count(harmless, tag)) << tag;
  EXPECT_THAT(html, HasSubstr("<title>&lt;script&gt;alert(1)&lt;\\script&gt; - Espalier report</title>"));
  // What the script reads is what the files hold.
  const std::size_t begin = html.find("id=\"data\">") + 10;
  const Json data = Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  EXPECT_EQ(data["name"], "<script>alert(1)<\\script>");
  EXPECT_EQ(fact(data, "started"), "\"</SCRIPT >\"");
  EXPECT_THAT(data["cause"].get<std::string>(),
              HasSubstr("process 4711 on \"><img src=x></script><!--<script> is gone"));
  EXPECT_EQ(fact(data, "gemm flops"), "250000000000.0");
  EXPECT_EQ(fact(data, "ranks"), "4");
  EXPECT_EQ(fact(data, "threads"), "none") << "not noted";
}

TEST(Report, is_one_file_that_loads_nothing) {
  const std::string html = report_html(run_of(3, 1));
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>\n"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, HasSubstr("<noscript>"));
  EXPECT_THAT(html, HasSubstr("Chart.js v"));
  for (const char* const outside : {"<link", "src=\"", "@import", "url(", "@DATA@", "@TITLE@", "@chart@"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(Report, json_is_the_data_of_the_page) {
  const RecordedRun run = run_of(3, 1);
  EXPECT_EQ(Json::parse(report_json(run))["series"], report_data(run)["series"]);
}

TEST(Report, details_of_another_kind_are_passed_over) {
  RecordedRun run = run_of(3, 1);
  for (const char* const details :
       {"[]", "7", R"({"memory": 3, "facts": "x"})", R"({"memory": {"peak_bytes": "x"}})"}) {
    run.record.details = nlohmann::json::parse(details);
    EXPECT_EQ(report_data(run)["memory"]["peak_bytes"], 0) << details;
  }
}

TEST(Report, at_the_end_of_a_run_fails_nothing) {
  const TemporaryDirectory directory;
  EXPECT_THAT(write_report_at_end(directory / "no-such-run"), HasSubstr("report.html could not be written"));
  EXPECT_THAT(write_report_at_end(directory.path()), HasSubstr("not a run directory"));
  write_bytes(directory / "metrics.jsonl", "");
  std::filesystem::resize_file(directory / "metrics.jsonl", 300 << 20);  // a hole: takes no space
  EXPECT_THAT(write_report_at_end(directory.path()), HasSubstr("espalier report "));
}

}  // namespace
