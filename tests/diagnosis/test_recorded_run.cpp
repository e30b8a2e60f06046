// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>

#include "tests/diagnosis/recorded_run_test.hpp"
#include "training/config/emulation.hpp"

using namespace espalier;
using namespace espalier::test;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

namespace {

TEST_F(RecordedRunTest, ReadsWhatTrainWrites) {
  const RecordedRun run = read();
  EXPECT_EQ(run.record.state, RunState::completed);
  EXPECT_EQ(run.config.layout.num_devices(), 2);
  EXPECT_EQ(run.facts.host_of(0), "b");
  EXPECT_EQ(run.facts.host_of(7), "unknown host");
  ASSERT_EQ(run.facts.links.slow.size(), 1u);
  EXPECT_EQ(run.facts.links.slow.front().axis, Axis::pp);
  EXPECT_EQ(run.facts.links.slow.front().seconds, 0.5);
  EXPECT_EQ(run.config.layout.num_microbatches(), 4);
  EXPECT_EQ(run.config.layout.layers_of_stages(), (std::vector<Index>{3, 1}));
  EXPECT_EQ(run.config.emulate.forward, 0.5);
  EXPECT_EQ(message_scale(run.config.emulate, Axis::tp), 30);
  EXPECT_EQ(message_scale(run.config.emulate, Axis::dp), 40);
  EXPECT_GE(run.read_at, run.last_sign_of_life);
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[2].loss, 2);
  EXPECT_TRUE(std::isinf(run.steps[2].gradient_norm));
  EXPECT_EQ(run.steps[2].times.seconds[Phase::backward], 0.2);
  EXPECT_EQ(run.steps[2].memory_peak[Category::weights], 7u);
  ASSERT_EQ(run.ranks.size(), 2u);
  EXPECT_EQ(run.ranks[1][2].activation_transit, 0.25);
  EXPECT_EQ(run.ranks[1][2].bytes_sent[static_cast<std::size_t>(Axis::pp)], 2u);
  EXPECT_FALSE(run.predicted_time);
  EXPECT_EQ(run.life, Life::ended);
}

// The login node of a cluster sees the files of a run, and not its process.
TEST_F(RecordedRunTest, RunOfAnotherHostLivesAsLongAsItsFilesChange) {
  RunRecord record = read().record;
  record.state = RunState::running;
  record.host = "another host";
  record.pid = 4711;
  write("run.json", to_json(record).dump());
  EXPECT_EQ(read().life, Life::alive);
  const auto an_hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(path("run.json"), an_hour_ago);
  EXPECT_EQ(read().life, Life::alive) << "metrics.jsonl is new";
  std::filesystem::last_write_time(path("metrics.jsonl"), an_hour_ago);
  const RecordedRun silent = read();
  EXPECT_EQ(silent.life, Life::silent);
  EXPECT_NEAR(silent.last_sign_of_life, static_cast<double>(std::time(nullptr)) - 3600, 60);
  record.host = host_name();
  write("run.json", to_json(record).dump());
  EXPECT_EQ(read().life, Life::gone) << "seen from its own host, no file can hide it";
}

TEST_F(RecordedRunTest, TornLastLineIsPassedOver) {
  std::ofstream(path("metrics.jsonl"), std::ios::app) << R"({"step":4,"loss)";
  EXPECT_EQ(read().steps.size(), 3u);
}

TEST_F(RecordedRunTest, PredictionIsReadAndOneOfAnotherVersionLeftOut) {
  write("prediction.json",
        R"({"format":"espalier-prediction","format_version":1,"step_seconds":0.4,"source":"calibration",)"
        R"("stages":[{"stage":0,"seconds":{"forward":0.1},"memory_bytes":{"weights":5}},{"stage":1,"seconds":{}}]})");
  const RecordedRun run = read();
  ASSERT_TRUE(run.predicted_time);
  EXPECT_EQ(run.predicted_time->source, "calibration");
  ASSERT_EQ(run.predicted_time->stages.size(), 2u);
  EXPECT_EQ(run.predicted_time->stages[0][Phase::forward], 0.1);
  EXPECT_EQ(run.predicted_memory[0][Category::weights], 5u);
  write("prediction.json", R"({"format":"espalier-prediction","format_version":1,)"
                           R"("stages":[{"stage":0,"memory_bytes":{"weights":7}},{"stage":1}]})");
  EXPECT_FALSE(read().predicted_time) << "of memory alone";
  EXPECT_TRUE(read().gaps.empty());
  EXPECT_EQ(read().predicted_memory[0][Category::weights], 7u);
  write("prediction.json", R"({"format":"espalier-prediction","format_version":1,"why_no_times":"too odd",)"
                           R"("stages":[{"stage":0},{"stage":1}]})");
  EXPECT_EQ(read().gaps, std::vector<std::string>{"no prediction of the step's time: too odd"});
  write("prediction.json", R"({"format":"espalier-prediction","format_version":1,"stages":[{"stage":0}]})");
  EXPECT_EQ(refusal(ExitCode::data).got, "1 stage");
  write("prediction.json", R"({"format":"espalier-prediction","format_version":2})");
  EXPECT_FALSE(read().predicted_time);
  EXPECT_THAT(read().gaps.front(), HasSubstr("another version"));
  write("prediction.json", "{");
  EXPECT_THAT(refusal(ExitCode::data).where, HasSubstr("prediction.json"));
}

TEST_F(RecordedRunTest, RunThatEndedBeforeItsFirstStepIsRead) {
  set_state(RunState::failed);
  std::filesystem::remove(path("metrics.jsonl"));
  std::filesystem::remove_all(path("ranks/x").parent_path());
  const RecordedRun run = read();
  EXPECT_TRUE(run.steps.empty());
  EXPECT_EQ(run.gaps.front(), "the run ended before it finished a step");
}

// A run that ended in order has trained: then nothing is as good as damage.
TEST_F(RecordedRunTest, RunThatTrainedHasMetrics) {
  for (const RunState state : {RunState::completed, RunState::preempted}) {
    set_state(state);
    empty("metrics.jsonl");
    EXPECT_THAT(refusal(ExitCode::data).what, HasSubstr("its record is empty")) << to_string(state);
    std::filesystem::remove(path("metrics.jsonl"));
    const ErrorReport missing = refusal(ExitCode::data);
    EXPECT_EQ(missing.where, path("metrics.jsonl").string());
    EXPECT_EQ(missing.got, "no such file");
    EXPECT_THAT(missing.wanted, HasSubstr(to_string(state)));
  }
}

TEST_F(RecordedRunTest, DamagedLinesAreNamed) {
  for (const char* const file : {"metrics.jsonl", "ranks/rank-00001.jsonl"})
    for (const char* const garbage : {"\x80\xff{", "[1]", "", "{\"step\":4"}) {
      const std::string good = read_file(path(file), ExitCode::data);
      append(file, garbage);
      append(file, "{}");
      EXPECT_EQ(refusal(ExitCode::data).where, path(file).string() + ":4") << garbage;
      std::ofstream(path(file)) << good;
    }
  empty("ranks/rank-00001.jsonl");
  EXPECT_EQ(refusal(ExitCode::data).where, path("ranks/rank-00001.jsonl").string());
}

TEST_F(RecordedRunTest, TimesBelowZeroAreDamage) {
  append("ranks/rank-00000.jsonl",
         R"({"step":4,"step_seconds":0.5,"seconds":{"other":-1e-9},"bytes_sent":{"tp":0,"dp":0,"pp":0}})");
  EXPECT_EQ(read().ranks[0].size(), 4u) << "a rounding error";
  append("ranks/rank-00000.jsonl",
         R"({"step":5,"step_seconds":0.5,"seconds":{"backward":-0.1},"bytes_sent":{"tp":0,"dp":0,"pp":0}})");
  const ErrorReport report = refusal(ExitCode::data);
  EXPECT_EQ(report.where, path("ranks/rank-00000.jsonl").string() + ":5");
  EXPECT_EQ(report.got, "\"backward\": -0.1");
}

TEST_F(RecordedRunTest, RunThatDidNotComeToItsTraceLacksNone) {
  append("config.toml", "[run]\ntrace_steps = 2\ntrace_first_step = 3\n");
  set_state(RunState::failed);
  EXPECT_THAT(read().gaps, Not(Contains(HasSubstr("trace/"))));
}

TEST_F(RecordedRunTest, OnlyCompleteCheckpointsCount) {
  EXPECT_FALSE(read().newest_checkpoint);
  std::filesystem::create_directories(directory_ / "checkpoints/step-00000002");
  EXPECT_FALSE(read().newest_checkpoint) << "without a manifest";
}

TEST_F(RecordedRunTest, UnknownStatesAreDamage) {
  nlohmann::json record = to_json(*read_run_record(directory_.path()));
  record["state"] = "finished";
  write("run.json", record.dump());
  EXPECT_THAT(refusal(ExitCode::data).got, HasSubstr("\"state\" is \"finished\""));
}

TEST_F(RecordedRunTest, NoRunDirectory) {
  std::filesystem::remove(path("run.json"));
  EXPECT_EQ(refusal(ExitCode::usage).got, "a directory without run.json");
  try {
    read_recorded_run(directory_ / "absent");
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.report().got, "no such directory");
  }
  try {
    read_recorded_run(path("config.toml") / "below");
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.report().got, "no such directory: " + path("config.toml").string() + " is a file");
  }
}

// For root nothing is closed, so the test is somebody else meanwhile.
TEST_F(RecordedRunTest, WhatMayNotBeReadIsNotMissing) {
  const auto refusal_without = [&](const std::filesystem::path& closed) {
    std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
    std::filesystem::permissions(closed, std::filesystem::perms::none);
    const bool root = geteuid() == 0;
    constexpr uid_t anybody = 65534;
    EXPECT_TRUE(!root || seteuid(anybody) == 0);
    const ErrorReport report = refusal(ExitCode::usage);
    EXPECT_TRUE(!root || seteuid(0) == 0);
    std::filesystem::permissions(closed, std::filesystem::perms::all);
    return report;
  };
  for (const std::filesystem::path& closed : {directory_ / "ranks", std::filesystem::path(directory_.path())}) {
    const ErrorReport report = refusal_without(closed);
    EXPECT_EQ(report.what, "a directory of the run cannot be read") << closed;
    EXPECT_EQ(report.got, "Permission denied") << closed;
  }
}

TEST_F(RecordedRunTest, RecomputationMayDifferByStage) {
  std::string config = read_file(path("config.toml"), ExitCode::data);
  config.insert(config.find("[batch]"), "recompute_per_stage = [\"full\", \"none\"]\n");
  write("config.toml", config);
  const Layout layout = read().config.layout;
  EXPECT_EQ(layout.recompute_of(0), Recompute::full);
  EXPECT_EQ(layout.recompute_of(1), Recompute::none);
  EXPECT_THAT(layout.short_text(), HasSubstr("recompute full on stage 0"));
}

// As training/config/run_layout.hpp resolves it: settings that do nothing are off, and shards lie within nodes.
TEST_F(RecordedRunTest, LayoutIsThatOfTheRun) {
  const std::string config = read_file(path("config.toml"), ExitCode::data);
  const auto with = [&](const std::string& parallel) {
    std::string changed = config;
    changed.replace(changed.find("tensor = 1"), changed.find("[batch]") - changed.find("tensor = 1"), parallel + '\n');
    write("config.toml", changed);
    return read().config;
  };
  const RunConfig alone = with("tensor = 1\ndata = 2\npipeline = 1\nzero_stage = 3\nshard_over = \"node\"");
  EXPECT_EQ(alone.ranks_per_node, 1);
  EXPECT_EQ(alone.layout.zero_stage, 0) << "a replica alone on its node shares nothing";
  const RunConfig all = with("tensor = 1\ndata = 2\npipeline = 1\nzero_stage = 3\nsequence_parallel = true");
  EXPECT_EQ(all.layout.zero_stage, 3);
  EXPECT_FALSE(all.layout.sequence_parallel);
  const RunConfig dealt =
      with("tensor = 1\ndata = 1\npipeline = 2\nschedule = \"interleaved\"\nassignment = \"round_robin\"");
  EXPECT_EQ(dealt.layout.virtual_stages, 2);
  std::string wrong = config;
  wrong.replace(wrong.find("[3, 1]"), 6, "[2, 1, 1]");
  write("config.toml", wrong);
  EXPECT_THAT(refusal(ExitCode::data).got, HasSubstr("layers_per_stage has 3 numbers, wanted 2"));
  wrong = config;
  wrong.insert(wrong.find("[batch]"), "schedule = \"of_tomorrow\"\n");
  write("config.toml", wrong);
  EXPECT_THAT(refusal(ExitCode::data).got, HasSubstr("parallel.schedule: got \"of_tomorrow\""));
}

TEST_F(RecordedRunTest, DamagedAndForeignFilesAreNamed) {
  append("metrics.jsonl", R"({"step":4,"loss":1})");
  EXPECT_THAT(refusal(ExitCode::data).where, HasSubstr("metrics.jsonl"));
  const std::string config = read_file(path("config.toml"), ExitCode::data);
  const auto with = [&](const std::string& old, const std::string& value) {
    std::string changed = config;
    changed.replace(changed.find(old), old.size(), value);
    write("config.toml", changed);
    return refusal(ExitCode::data);
  };
  const ErrorReport batch = with("= 8", "= \"many\"");
  EXPECT_EQ(batch.where, path("config.toml").string() + ":9:21");
  EXPECT_EQ(batch.got, "batch.global_batch_size: got \"many\" (a string), wanted an integer");
  EXPECT_THAT(with("pipeline = 2", "pipeline = 3").what, HasSubstr("more ranks"));
  EXPECT_THAT(with("num_layers = 4", "num_layers = 1").got, HasSubstr("2 parts are more than num_layers 1"));
  EXPECT_THAT(with("sequence_length = 16", "sequence_length = 0").got, HasSubstr("batch.sequence_length: got 0"));
  EXPECT_THAT(with("global_batch_size = 8", "global_batch_size = 1").got, HasSubstr("1 is not divisible by"));
  EXPECT_THAT(with("[batch]", "recompute_per_stage = [\"full\"]\n[batch]").got, HasSubstr("has 1 entries"));
  EXPECT_EQ(with("pipeline = 2", "stages = 2").got, "parallel.stages: unknown key");
  EXPECT_EQ(with("pipeline = 2", "").got, "parallel.pipeline: is missing");
  EXPECT_THAT(with("[model]", "[model").where, HasSubstr("config.toml"));
  std::filesystem::remove(path("config.toml"));
  EXPECT_THAT(refusal(ExitCode::data).where, HasSubstr("config.toml"));
  write("run.json", R"({"state":"completed","cause":"","host":"","pid":1,"process_start":1,"boot":"","started":"",)"
                    R"("ended":"","starts":1,"details":{"facts":{"ranks":"two"}}})");
  EXPECT_THAT(refusal(ExitCode::data).what, HasSubstr("details"));
  EXPECT_THAT(refusal(ExitCode::data).got, HasSubstr("\"ranks\" is \"two\", wanted an integer"));
  write("run.json", R"({"state": "completed"})");
  EXPECT_THAT(refusal(ExitCode::data).where, HasSubstr("run.json"));
  EXPECT_EQ(refusal(ExitCode::data).got, "no \"cause\"");
}

// Where it is, in words of ours: the exceptions of the JSON library name neither file nor key.
TEST_F(RecordedRunTest, DamageInJsonHasItsPlace) {
  write("run.json", "{\n \"state\": completed\n}");
  EXPECT_EQ(refusal(ExitCode::data).where, path("run.json").string() + ":2:11");
  EXPECT_THAT(refusal(ExitCode::data).got, Not(HasSubstr("json.exception")));
  empty("run.json");
  EXPECT_EQ(refusal(ExitCode::data).got, "an empty file");
  write("run.json", "[]");
  EXPECT_EQ(refusal(ExitCode::data).got, "no \"state\"");
}

TEST_F(RecordedRunTest, DamagedFieldsOfALineAreNamed) {
  const auto with = [&](const std::string& field) {
    const std::string good = read_file(path("metrics.jsonl"), ExitCode::data);
    append("metrics.jsonl", R"({"step":4,)" + field + "}");
    const ErrorReport report = refusal(ExitCode::data);
    std::ofstream(path("metrics.jsonl")) << good;
    return report.got;
  };
  EXPECT_TRUE(with(R"("learning_rate":1)").starts_with("no \"loss\" in {"));
  EXPECT_TRUE(with(R"("loss":"two")").starts_with("\"loss\" is \"two\", wanted a finite number in {"));
  write("prediction.json", R"({"format":"espalier-prediction","format_version":1,"stages":[{"seconds":5}]})");
  EXPECT_EQ(refusal(ExitCode::data).got, "\"seconds\" is 5, wanted an object");
}

TEST_F(RecordedRunTest, PartsOfARunAndDirectoriesOfRunsLeadToIt) {
  for (const Path& near : {path("run.json"), path("checkpoints/x").parent_path(), directory_ / "absent"}) {
    try {
      read_recorded_run(near);
      ADD_FAILURE() << near << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.report().todo, "did you mean " + directory_.path().string() + "?") << near;
    }
  }
  TemporaryDirectory runs;
  std::filesystem::rename(directory_.path(), runs / "today");
  try {
    read_recorded_run(runs.path());
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.report().todo, "did you mean " + (runs / "today").string() + "?");
  }
}

}  // namespace
