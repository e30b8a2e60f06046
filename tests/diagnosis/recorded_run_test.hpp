// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "diagnosis/recorded_run.hpp"
#include "io/machine.hpp"
#include "tests/io/support.hpp"

namespace espalier::test {

// A run of two ranks, three steps far, as train writes it.
class RecordedRunTest : public testing::Test {
 protected:
  RecordedRunTest() {
    RunRecord record;
    record.state = RunState::completed;
    const nlohmann::json slow = {{{"from", 0}, {"to", 1}, {"seconds", 0.5}}};
    record.details = {{"facts",
                       {{"ranks", 2},
                        {"first_step", 1},
                        {"hosts", {"a", "b"}},
                        {"host_of_rank", {1, 0}},
                        {"links", {{"pp", {{"typical_seconds", 1e-4}, {"slow", slow}}}}}}}};
    write("run.json", to_json(record).dump());
    write("config.toml",
          "[model]\nnum_layers = 4\n[parallel]\ntensor = 1\ndata = 0\npipeline = 2\nlayers_per_stage = [3, 1]\n"
          "[batch]\nglobal_batch_size = 8\nmicro_batch_size = 2\nsequence_length = 16\n[emulate]\nforward = 0.5\n"
          "message_scale = 10\ntensor_message_scale = 3\ndata_message_scale = 4\n");
    for (int step = 1; step <= 3; ++step) {
      append("metrics.jsonl",
             fmt::format(R"({{"step":{},"loss":{},"learning_rate":0.001,"gradient_norm":"inf","loss_scale":1,)"
                         R"("skipped_steps":0,"tokens":{},"tokens_per_second":100,"step_seconds":0.5,)"
                         R"("seconds":{{"forward":0.1,"backward":0.2}},"bytes_sent":{{"tp":0,"dp":1,"pp":2}},)"
                         R"("memory_peak_bytes":{{"weights":7}},"gemm_fraction":0.4}})",
                         step, 5 - step, 128 * step));
      for (const char* const rank : {"ranks/rank-00000.jsonl", "ranks/rank-00001.jsonl"})
        append(rank, fmt::format(R"({{"step":{},"step_seconds":0.5,"seconds":{{"forward":0.1}},)"
                                 R"("bytes_sent":{{"tp":0,"dp":1,"pp":2}},"transit_seconds":{{"activations":0.25}}}})",
                                 step));
    }
  }

  void write(const std::string& name, const std::string& text) { std::ofstream(path(name)) << text << '\n'; }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::app) << text << '\n';
  }
  std::filesystem::path path(const std::string& name) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    return directory_ / name;
  }
  void empty(const std::string& name) { std::ofstream(path(name), std::ios::trunc); }
  void set_state(RunState state) {
    RunRecord record = *read_run_record(directory_.path());
    record.state = state;
    write("run.json", to_json(record).dump());
  }
  RecordedRun read() { return read_recorded_run(directory_.path()); }
  ErrorReport refusal(ExitCode code) {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.report();
    }
    ADD_FAILURE() << "it was read";
    return {};
  }

  TemporaryDirectory directory_;
};

}  // namespace espalier::test
