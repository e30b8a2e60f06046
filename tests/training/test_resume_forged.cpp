// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Manifests whose checksum is right and whose state is not: a start takes the next older checkpoint, and says why.
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_manifest.hpp"
#include "tests/training/run_starts.hpp"
#include "training/checkpoint/stored_state.hpp"

namespace espalier::test {
namespace {

using nlohmann::json;

struct Forgery {
  const char* pointer;  // into the state
  json value;
};

const std::vector<Forgery>& forgeries() {
  static const std::vector<Forgery> all = {
      {"/step", 3},
      {"/step", -1},
      {"/step", Index{1} << 62},
      {"/step", "8"},
      {"/data_position", -5},
      {"/data_position", 0},
      {"/data_position", Index{1} << 62},
      {"/data_position", 1e18},
      {"/tokens", 1},
      {"/tokens", nullptr},
      {"/passed_over", json::array({json::array({0, 1})})},
      {"/passed_over", json::array({json::array({-9, 1LL << 62})})},
      {"/passed_over", json::array({5})},
      {"/passed_over", json(std::vector<json>(20000, json::array({100, 100})))},
      {"/loss", nullptr},
      {"/loss", "nan"},
      {"/seed", 43},
      {"/seed", -1},
      {"/tokenizer", 5},
      {"/tokenizer", std::string(5000, 'x')},
      {"/matmul", 5},
      {"/matmul", json::object()},
      {"/matmul_kernels", "all"},
      {"/matmul_kernels", json::array({{{"made_with", "x"}, {"kernels", {{"up", json::object()}}}}})},
      {"/matmul_kernels", json::array({{{"made_with", 5}, {"kernels", json::object()}}})},
      {"/config", 5},
      {"/config", "no TOML = ["},
      {"/config", "[model]\nnum_layers = 2\n"},
      {"/config", "[model]\nx = " + std::string(100000, '[')},
      {"/loss_scale", json::array()},
      {"/loss_scale/scale", -1},
      {"/loss_scale/scale", 1e300},
      {"/loss_scale/good_steps", -1},
      {"/loss_scale/at_floor", 1 << 20},
      {"/loss_scale/skipped", 1e30},
      {"/loss_scale/skipped", 9},  // of 8 steps
      {"/spike_guard/losses", json::array()},
      {"/spike_guard/log_norms", json::array({1, 2, 3, 4, 5, 6, 7, 8, 9})},
      {"/spike_guard/losses", json::array({"a"})},
      {"/spike_guard/skipped", -1},
      {"/spike_guard/skipped", 9},
      {"/spike_guard/skipped_in_a_row", 5},
      {"/spike_guard", 5},
      {"/next_loss", 5},
      {"/next_loss/samples", 0},
      {"/next_loss/samples", 1 << 20},
      {"/next_loss/loss", "nan"},
      {"/next_loss/compute", "fp7"},
  };
  return all;
}

// A model that the tensors of the checkpoint do not make.
std::string with_value(const std::string& config, const std::string& key, const std::string& value) {
  const std::size_t at = config.find("\n" + key + " = ") + key.size() + 4;
  return config.substr(0, at) + value + config.substr(config.find_first_of(" \n", at));
}

TEST(ResumeForged, ModelThatTheTensorsDoNotMake) {
  const SharedFolder folder("forged_model");
  const RunConfig run = config_in(folder, "run", {});
  start_run(run, {});
  on_root([&] {
    const Path newest = folder / "run/checkpoints/step-00000008";
    const Manifest sound = parse_manifest(read_file(newest / "manifest.json", ExitCode::data), newest);
    const std::string config = sound.info.state["config"];
    for (const auto& [key, value] : {std::pair("num_layers", "1000000000"),
                                     {"num_layers", "1"},
                                     {"num_heads", "7"},
                                     {"vocab_size", "1000000"},
                                     {"hidden_size", "-1"},
                                     {"hidden_size", "48"},
                                     {"ffn_hidden_size", "1"},
                                     {"max_sequence_length", "1"},
                                     {"bias", "false"},
                                     {"qk_norm", "true"}}) {
      Manifest manifest = sound;
      manifest.info.state["config"] = with_value(config, key, value);
      write_file_atomically(newest / "manifest.json", to_text(manifest));
      try {
        read_state(CheckpointReader(newest));
        ADD_FAILURE() << key << " = " << value << " was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
      }
    }
  });
}

TEST(ResumeForged, TheNextOlderCheckpointIsTaken) {
  const SharedFolder folder("forged");
  const RunConfig run = config_in(folder, "run", {"checkpoint.interval=4"});
  start_run(run, {});
  const std::vector<std::string> wanted = losses(run);
  const Path newest = folder / "run/checkpoints/step-00000008";
  const std::string sound = read_file(newest / "manifest.json", ExitCode::data);
  for (const Forgery& forgery : forgeries()) {
    SCOPED_TRACE(std::string(forgery.pointer) + " = " + forgery.value.dump().substr(0, 60));
    on_root([&] {
      Manifest manifest = parse_manifest(sound, newest / "manifest.json");
      manifest.info.state[json::json_pointer(forgery.pointer)] = forgery.value;
      write_file_atomically(newest / "manifest.json", to_text(manifest));
      try {
        read_state(CheckpointReader(newest));
        ADD_FAILURE() << "nothing was refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
      }
    });
  }
  // And a whole start, of three of them.
  for (const Forgery& forgery : {forgeries()[0], forgeries()[4], Forgery{"/spike_guard/losses", json::array()}}) {
    on_root([&] {
      Manifest manifest = parse_manifest(read_file(newest / "manifest.json", ExitCode::data), newest);
      manifest.info.state = parse_manifest(sound, newest).info.state;
      manifest.info.state[json::json_pointer(forgery.pointer)] = forgery.value;
      write_file_atomically(newest / "manifest.json", to_text(manifest));
    });
    const Start start = start_run(run, {});
    EXPECT_TRUE(start.says("passing over", "step-00000008")) << forgery.pointer;
    EXPECT_TRUE(start.says("resumed from", "step-00000004")) << forgery.pointer;
    EXPECT_EQ(start.outcome, TrainOutcome::completed);
    EXPECT_EQ(losses(run), wanted);
  }
}

}  // namespace
}  // namespace espalier::test
