// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "core/memory_text.hpp"
#include "io/markup.hpp"
#include "planning/layout_limits.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/no_layout.hpp"
#include "planning/plan_text.hpp"
#include "planning/run_cost.hpp"
#include "planning/time_text.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::problem_of;
using testing::HasSubstr;

namespace {

std::size_t words_in(const std::string& sentence) {
  std::istringstream words(sentence);
  return static_cast<std::size_t>(
      std::distance(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()));
}

// Sentences end with a point, a question mark or their line; tables and headings have none.
void expect_short_sentences(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|") || line.starts_with("#"))
      continue;
    for (std::size_t at = 0; at < line.size();) {
      std::size_t end = line.find_first_of(".?", at);
      while (end != std::string::npos && end + 1 < line.size() && line[end + 1] != ' ' && line[end + 1] != '*')
        end = line.find_first_of(".?", end + 1);
      const std::string sentence = line.substr(at, end == std::string::npos ? end : end + 1 - at);
      EXPECT_LE(words_in(sentence), 25U) << sentence;
      at = end == std::string::npos ? line.size() : end + 1;
    }
  }
}

struct Question {
  const char* model;
  const char* cluster;
  Index batch;
  Precision precision;
};

// The problem of a question, its space, and what a search finds.
struct Found {
  explicit Found(const Question& question) : problem(problem_of(question.model, question.cluster)) {
    problem.num_tokens = 300'000'000'000;
    space.num_devices = problem.cluster.num_devices();
    space.global_batch = question.batch;
    space.precisions = {question.precision};
    result = search_layouts(problem, space);
  }
  std::string written(const Goal& goal = {}) const { return memo(problem, space, result, {}, goal); }

  PlanProblem problem;
  LayoutSpace space;
  SearchResult result;
};

TEST(MemoPage, has_short_sentences) {
  for (const Question& each : {Question{"gpt2-124m", "cpu:8", 64, Precision::fp32},
                               {"gpt2-1558m", "v100:2", 64, Precision::fp16},
                               {"gpt-30b", "a100-80", 256, Precision::bf16},
                               {"gpt3-175b", "v100:64", 512, Precision::fp16},
                               {"llama3-8b", "mi300a:2", 64, Precision::bf16},
                               {"llama3-70b", "h100:8", 512, Precision::bf16},
                               {"llama-3.1-405b", "h100:64", 512, Precision::fp8},
                               {"gpt-22b", "pvc:8", 96, Precision::bf16}}) {
    SCOPED_TRACE(each.model);
    const Found found(each);
    expect_short_sentences(found.written({.most_step_seconds = 1, .least_tokens_per_second = 1}));
  }
}

// Another layout of the same ranks is no other split.
TEST(MemoPage, the_next_best_split_is_another_split) {
  Found found({"gpt-22b", "a100-80:4", 128, Precision::bf16});
  const std::string text = found.written();
  EXPECT_THAT(text, HasSubstr(" split is " + mesh_text(found.result.ranking[1].layout) + ". "));
  LayoutPrice same = found.result.ranking.front();
  same.step_seconds *= 0.998;
  found.result.ranking.insert(found.result.ranking.begin() + 1, same);
  EXPECT_EQ(found.written(), text);
  found.result.ranking.resize(2);
  EXPECT_THAT(found.written(), HasSubstr("No other split is possible."));
}

// Context ranks sum gradients as replicas do, wherever a memo counts them.
TEST(MemoPage, gradients_are_summed_over_context_ranks_too) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutSpace space{.num_devices = 32, .global_batch = 128, .tensor = 8, .context = 2, .data = 2};
  const SearchResult result = search_layouts(problem, space);
  ASSERT_FALSE(result.ranking.empty());
  const std::string text = memo(problem, space, result, {});
  EXPECT_THAT(text, HasSubstr("Each of the 4 ranks (2 replicas x context 2) processes its own part of the batch."));
  EXPECT_THAT(text, HasSubstr(" and 4 ranks (2 replicas x context 2), and small terms would be lost"));
}

// What the page says is what `--json` has.
TEST(MemoPage, has_the_figures_of_json) {
  Found found({"gpt-30b", "a100-80", 256, Precision::bf16});
  found.problem.cluster.price_per_device_hour = 2;
  found.problem.cluster.currency = "EUR";
  found.problem.cluster.device_watts = 800;
  const std::string text = found.written();
  const auto json =
      nlohmann::json::parse(search_json(found.problem, found.space, {}, {}, found.result, 100))["ranking"][0];
  const auto row = [&](const std::string& name, const std::string& unit, const nlohmann::json& value,
                       const nlohmann::json& interval) {
    EXPECT_THAT(text, HasSubstr(fmt::format("| {} | {}{} | {} to {} |", name, rounded_text(value.get<double>()), unit,
                                            rounded_text(interval["low"].get<double>()),
                                            rounded_text(interval["high"].get<double>()))));
  };
  const nlohmann::json& run = json["run"];
  for (const auto& [name, unit, key] : {std::tuple("days for 300B tokens", "", "days"),
                                        {"device-hours", "", "device_hours"},
                                        {"cost", " EUR", "cost"},
                                        {"energy", " kWh", "energy_kwh"}})
    row(name, unit, run[key]["value"], run[key]);
  EXPECT_THAT(text, HasSubstr(fmt::format("| time of a step | {} | {} to {} s |", time_text(json["step_seconds"]),
                                          rounded_text(json["step_interval"]["low"].get<double>()),
                                          rounded_text(json["step_interval"]["high"].get<double>()))));
  EXPECT_THAT(text, HasSubstr(fmt::format("| tokens per second | {} |",
                                          rounded_text(json["tokens_per_second"].get<double>(), 4))));
  EXPECT_THAT(text, HasSubstr(fmt::format(
                        "| {} of {} | {} to {} |", bytes_text(json["memory_bytes"].get<std::size_t>()),
                        free_text(found.problem),
                        bytes_text(static_cast<std::size_t>(json["memory_interval"]["low"].get<double>())),
                        bytes_text(static_cast<std::size_t>(json["memory_interval"]["high"].get<double>())))));
}

// Each share with the rate that it is of.
TEST(MemoPage, utilization_is_of_what_was_measured_and_of_the_peak) {
  Found found({"gpt-30b", "h100:4", 256, Precision::bf16});
  MatrixRate& rate = found.problem.cluster.device.rate(Precision::bf16);
  rate.is_measured = true;
  rate.maker_peak = 1600e12;
  found.result = search_layouts(found.problem, found.space);
  const FlopsShares& shares = found.result.ranking.front().flops_shares;
  EXPECT_THAT(found.written(),
              HasSubstr(fmt::format("GEMM fraction {:.1f} % of 989 TFLOP/s, MFU {:.1f} % of 1.6 PFLOP/s in bf16",
                                    100 * shares.gemm_fraction.value(), 100 * shares.mfu.value())));
}

// A memo is written also where nothing fits.
TEST(MemoPage, is_written_where_nothing_fits) {
  const PlanProblem problem = problem_of("gpt3-175b", "a100-80:2");
  LayoutSpace space{.num_devices = 16, .global_batch = 512};
  const SearchResult result = search_runnable(problem, space);
  ASSERT_TRUE(result.ranking.empty());
  const ErrorReport report = no_layout_report(problem, space, result);
  const std::string text = no_layout_memo(problem, space, result, report);
  const Index devices = fewest_devices(problem, space);
  EXPECT_GT(devices, 32);  // 3.1 TB of states over 74 GiB
  EXPECT_LE(devices, 64);
  for (const Index fewer : {devices - 8, devices}) {
    LayoutSpace there = space;
    there.num_devices = static_cast<int>(fewer);
    PlanProblem machine = problem;
    machine.cluster = with_devices(problem.cluster, there.num_devices);
    EXPECT_EQ(search_layouts(machine, there).ranking.empty(), fewer != devices) << fewer;
  }
  for (const std::string& part :
       {std::string("The model does not fit."), fmt::format("machine that fits has {} devices", devices),
        std::string("## Why"), std::string("## What would change the answer"), std::string("## How it fits in memory"),
        std::string("Nothing has run on several GPUs yet")})
    EXPECT_THAT(text, HasSubstr(part));
  expect_short_sentences(text);
}

// A text without markup reads as it was.
TEST(MemoPage, markdown_of_plain_text_is_the_text) {
  for (const char* const plain : {"tensor 8 x data 2, ZeRO-1 (+-10 %)", "batch.micro_batch_size = 2: 1.5 GiB; \"own\"",
                                  "it's 5' long", "a100-80:16x8", "\xC3\xA9t\xC3\xA9"})
    EXPECT_EQ(markdown_escaped(plain), plain);
  EXPECT_EQ(markdown_escaped("\xE9|"), "\uFFFD\\|");
  EXPECT_EQ(markdown_escaped("_a_b_ c_"), "\\_a_b\\_ c\\_");
}

}  // namespace
