// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/diagnose.hpp"
#include "diagnosis/report.hpp"
#include "diagnosis/report_data.hpp"
#include "tests/diagnosis/not_finite.hpp"
#include "tests/diagnosis/report_run.hpp"
#include "tests/io/support.hpp"

namespace {

using namespace espalier;
using test::run_of;
using test::TemporaryDirectory;
using test::times_of;
using test::write_bytes;
using testing::HasSubstr;
using testing::Not;

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

// Every colour that the data names is one of the style sheet.
TEST(Report, colours_are_those_of_the_page) {
  const RecordedRun run = run_of(3, 1);
  const std::string html = report_html(run);
  const Json colours = report_data(run)["colours"];
  for (const auto& [name, colour] : colours.items())
    EXPECT_THAT(html, HasSubstr("--" + colour.get<std::string>() + ": #")) << name;
  for (const char* const name : {"forward", "tensor_comm", "other", "weights", "workspace"})
    EXPECT_TRUE(colours.contains(name)) << name;
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
  EXPECT_EQ(fact(data, "GEMM rate"), "\"250 GFLOP/s, all ranks\"");
  EXPECT_EQ(fact(data, "16-bit units"), "\"no\"");
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
