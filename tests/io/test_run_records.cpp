// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "io/records/prediction_record.hpp"
#include "io/records/run_details.hpp"
#include "io/records/step_record.hpp"

// Each record is read as it was written, with every field.

namespace espalier {
namespace {

using nlohmann::json;

template <std::size_t N>
std::array<double, N> counted_up(double first) {
  std::array<double, N> values;
  for (std::size_t i = 0; i < N; ++i)
    values[i] = first + 0.125 * static_cast<double>(i);
  return values;
}

MemoryByCategory bytes_from(std::size_t first) {
  MemoryByCategory memory;
  for (std::size_t i = 0; i < num_categories; ++i)
    memory.bytes[i] = first + i;
  return memory;
}

StepTimes some_times() {
  StepTimes times{.step = 7, .step_seconds = 0.75, .seconds = {counted_up<num_phases>(1)}};
  for (const Axis axis : trained_axes)
    times.bytes_sent[static_cast<std::size_t>(axis)] = 100 + static_cast<std::uint64_t>(axis);
  times.activation_transit = 0.5;
  return times;
}

TEST(RunRecords, TimesOfARankAreReadAsWritten) {
  const StepTimes times = some_times();
  const StepTimes read = step_times_from_json(to_json(times));
  EXPECT_EQ(to_json(read), to_json(times));
  EXPECT_EQ(read.bytes_sent, times.bytes_sent);
  EXPECT_EQ(read.seconds.seconds, times.seconds.seconds);
  EXPECT_EQ(read.activation_transit, 0.5);
  EXPECT_EQ(read.gradient_transit, 0);
}

TEST(RunRecords, StepsAreReadAsWritten) {
  const StepRecord step{.loss = 3.5,
                        .learning_rate = 0.25,
                        .gradient_norm = 1.5,
                        .loss_scale = 4,
                        .skipped_steps = 2,
                        .tokens = 1000,
                        .valid_tokens = 90,
                        .attention_share = 0.5,
                        .tokens_per_second = 128,
                        .times = some_times(),
                        .memory_peak = bytes_from(50),
                        .gemm_fraction = 0.375,
                        .passed_over_samples = 3,
                        .mfu = 0.125,
                        .loss_score = 9,
                        .gradient_norm_score = 8,
                        .anomaly = "spike",
                        .validation_loss = 3.25};
  const nlohmann::ordered_json line = to_json(step);
  const StepRecord read = step_record_from_json(line);
  EXPECT_EQ(to_json(read), line);
  std::set<json> values;  // a field that is written twice, or read into another, would hide here
  for (const char* const key : {"loss", "learning_rate", "gradient_norm", "loss_scale", "skipped_steps", "tokens",
                                "valid_tokens", "attention_share", "tokens_per_second", "passed_over_samples", "mfu",
                                "loss_score", "gradient_norm_score", "gemm_fraction", "validation_loss"})
    values.insert(line.at(key));
  EXPECT_EQ(values.size(), 15U);
  EXPECT_EQ(read.memory_peak.bytes, step.memory_peak.bytes);
  EXPECT_TRUE(read.is_anomaly());
}

TEST(RunRecords, StepsOfEarlierVersionsHaveTheirGemmFractionAsMfu) {
  json line = to_json(StepRecord{.gemm_fraction = 0.375});
  line["mfu"] = line["gemm_fraction"];
  line.erase("gemm_fraction");
  const StepRecord read = step_record_from_json(line);
  EXPECT_EQ(read.gemm_fraction, 0.375);
  EXPECT_FALSE(read.mfu);
}

TEST(RunRecords, DetailsAreReadAsWritten) {
  RunFacts facts{.program = "espalier 1",
                 .cpu = "a CPU",
                 .hosts = {"a", "b"},
                 .host_of_rank = {0, 0, 1},
                 .ranks = 3,
                 .threads = 2,
                 .host_threads = 4,
                 .host_cores = 5,
                 .gemm_library = "own",
                 .gemm_flops = 1e9,
                 .fast_16_bits = true,
                 .first_step = 8,
                 .train_tokens = 999,
                 .unigram_loss = 3.5};
  facts.links.typical_seconds[static_cast<std::size_t>(Axis::dp)] = 0.25;
  facts.links.typical_seconds[static_cast<std::size_t>(Axis::tp)] = 0.5;
  facts.links.slow = {{.axis = Axis::dp, .from = 1, .to = 2, .seconds = 4}};
  json details = details_of(facts);
  const std::vector<LaunchRecord> history = {{.first_step = 1, .started = "now"},
                                             {.first_step = 5, .started = "then", .changes = {"a: 1 (was 2)"}}};
  details.update(details_of(history));
  details.update(details_of_steps_done(11));
  details.update(details_of(MeasuredMemory{
      .peak = bytes_from(5), .predicted = bytes_from(6), .library_bytes = 70, .library_bytes_of_rank_0 = 71}));
  details.update(details_of(MeasuredTime{.step_seconds = 2,
                                         .steps = 4,
                                         .stages = {{counted_up<num_phases>(1)}, {counted_up<num_phases>(3)}},
                                         .predicted_seconds = 2.5}));
  json again = details_of(facts_in(details));
  again.update(details_of(history_in(details)));
  again.update(details_of_steps_done(steps_done_in(details).value()));
  again.update(details_of(memory_in(details).value()));
  again.update(details_of(time_in(details)));
  EXPECT_EQ(again, details);
  EXPECT_EQ(details.size(), 5U);
  EXPECT_EQ(facts_in(details).links.slow.front().to, 2);
}

TEST(RunRecords, WhatIsNotNotedIsEmpty) {
  const json none = json::object();
  EXPECT_TRUE(facts_in(none).cpu.empty());
  EXPECT_TRUE(history_in(none).empty());
  EXPECT_FALSE(steps_done_in(none));
  EXPECT_FALSE(memory_in(none));
  EXPECT_ANY_THROW(time_in(none));
  EXPECT_ANY_THROW(time_in(json::parse(R"({"time": {"step_seconds": 1, "steps": 1, "stages": [3]}})")));
}

TEST(RunRecords, PredictionsAreReadAsWritten) {
  const PredictionRecord whole{
      .outlook = {.time = TimePrediction{.step_seconds = 2,
                                         .stages = {{counted_up<num_phases>(1)}, {counted_up<num_phases>(3)}},
                                         .error_share = 0.25,
                                         .calibrated = true,
                                         .source = "a file",
                                         .note = "a note"}},
      .memory = {bytes_from(1), bytes_from(9)}};
  const PredictionRecord of_memory{.outlook = {.why_not = "too odd"}, .memory = {bytes_from(1)}};
  for (const PredictionRecord& prediction : {whole, of_memory}) {
    const auto read = prediction_from_json(to_json(prediction));
    ASSERT_TRUE(read);
    EXPECT_EQ(to_json(*read), to_json(prediction));
  }
  json other = to_json(whole);
  other["format_version"] = 2;
  EXPECT_FALSE(prediction_from_json(other));
}

}  // namespace
}  // namespace espalier
