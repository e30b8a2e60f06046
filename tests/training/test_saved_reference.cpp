// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What one program saves of a reference another compares itself with, on any layout.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "tests/training/run_starts.hpp"
#include "training/verify/saved_reference.hpp"

namespace espalier::test {
namespace {

class SavedReferences : public ::testing::Test {
 protected:
  SavedReferences() : config_(tiny_config(folder_, 1)) {}

  void save(const RunConfig& config, Index steps) {
    VerifyOptions options;
    options.steps = steps;
    save_reference(config, options, world(), folder_ / "saved", [](const std::string&) {});
    barrier(world());
  }

  std::vector<VerifiedLayout> compare(const RunConfig& config) {
    VerifyOptions options;
    options.against = (folder_ / "saved").string();
    options.steps = SavedReference(folder_ / "saved", config, world()).num_steps();
    return verify(config, options, world(), [](const VerifiedLayout&) {});
  }

  Path step(Index number) const { return checkpoint_path(folder_ / "saved", number); }

  // Writes a step again, with right checksums, after `change` of its tensors.
  void rewrite(const std::function<void(std::map<std::string, std::vector<float>>&)>& change) {
    on_root([&] {
      std::map<std::string, std::vector<float>> tensors;
      std::map<std::string, std::vector<Index>> shapes;
      CheckpointInfo info;
      {
        const CheckpointReader reader(step(1));
        info = reader.info();
        for (const TensorInfo& tensor : reader.tensors()) {
          shapes[tensor.name] = tensor.global_shape;
          std::vector<float>& values = tensors[tensor.name];
          values.resize(static_cast<std::size_t>(num_elements(tensor.global_shape)));
          reader.read(tensor.name, tensor.global_shape, ScalarType::fp32, values.data());
        }
      }
      change(tensors);
      std::vector<TensorBlock> blocks;
      for (const auto& [name, values] : tensors)
        blocks.push_back(whole_tensor(name, ScalarType::fp32, shapes[name], values.data()));
      save_checkpoint(folder_ / "saved", info, blocks);
    });
  }

  SharedFolder folder_{"saved_reference"};
  RunConfig config_;
};

TEST_F(SavedReferences, MayShardOverNodes) {
  const RunConfig config = parse_run_config(to_toml(config_), "fp64", {"precision.compute=fp64"}, 1);
  VerifyOptions options;
  options.steps = 1;
  options.reference = {fmt::format("parallel.data={}", world().size()), "parallel.zero_stage=1",
                       "parallel.shard_over=node"};
  save_reference(config, options, world(), folder_ / "saved", [](const std::string&) {});
  barrier(world());
  for (const VerifiedLayout& layout : compare(config))
    EXPECT_LE(layout.errors.worst(), 1e-10) << layout.text << ", " << layout.errors.gradient.where;
}

TEST_F(SavedReferences, AnyLayoutIsCompared) {
  const RunConfig config = parse_run_config(to_toml(config_), "fp64", {"precision.compute=fp64"}, 1);
  save(config, 2);
  const std::vector<VerifiedLayout> layouts = compare(config);
  EXPECT_GE(layouts.size(), world().size() == 1 ? 1U : 4U);
  for (const VerifiedLayout& layout : layouts)
    EXPECT_LE(layout.errors.worst(), 1e-10) << layout.text << ", " << layout.errors.gradient.where;
}

TEST_F(SavedReferences, MastersOf16BitsAreSaved) {
  const RunConfig config = parse_run_config(to_toml(config_), "bf16", {"precision.compute=bf16"}, 1);
  save(config, 1);
  for (const VerifiedLayout& layout : compare(config)) {
    EXPECT_LE(layout.errors.gradient.value, default_tolerance(Precision::bf16)) << layout.text;
    EXPECT_LE(layout.errors.update.value, 1e-6) << layout.text << ": the master weights are fp32";
  }
}

TEST_F(SavedReferences, AnotherGradientIsFoundAndNamed) {
  save(config_, 1);
  rewrite([](auto& tensors) { tensors.at("gradients/h.1.mlp.up.weight").at(5) += 0.1F; });
  for (const VerifiedLayout& layout : compare(config_)) {
    EXPECT_GT(layout.errors.gradient.value, 1e-2) << layout.text;
    EXPECT_EQ(layout.errors.gradient.where, "h.1.mlp.up.weight");
    EXPECT_LE(layout.errors.loss.value, 1e-4) << "only the gradient is another";
  }
}

TEST_F(SavedReferences, OtherWeightsAreFound) {
  save(config_, 1);
  rewrite([](auto& tensors) { tensors.at("weights_before/final_norm.weight").at(0) += 1; });
  for (const VerifiedLayout& layout : compare(config_)) {
    EXPECT_GT(layout.errors.loss.value, 1e-4) << layout.text;
    EXPECT_GT(layout.errors.gradient.value, 1e-3) << layout.text;
  }
}

TEST_F(SavedReferences, AreRefusedWhereTheyAreOfSomethingElse) {
  save(config_, 1);
  const auto with = [&](const std::string& change) { return parse_run_config(to_toml(config_), "other", {change}, 1); };
  for (const std::string change : {"run.seed=2", "precision.compute=bf16", "model.num_layers=3",
                                   "batch.global_batch_size=16", "optimizer.beta2=0.9", "run.steps=21"})
    expect_refusal(ExitCode::usage, {"saved with another config", change.substr(0, change.find('='))},
                   [&] { SavedReference(folder_ / "saved", with(change), world()); });
  // What only says how and where it is computed, and the same tokens elsewhere.
  for (const std::string change :
       {"run.matmul=auto", "batch.micro_batch_size=1", "run.directory=elsewhere", "parallel.recompute=full"})
    EXPECT_EQ(SavedReference(folder_ / "saved", with(change), world()).num_steps(), 1) << change;
  on_root([&] { std::filesystem::copy_file(config_.data.train.at(0), folder_ / "copy.bin"); });
  EXPECT_EQ(SavedReference(folder_ / "saved", with("data.train=[\"" + (folder_ / "copy.bin").string() + "\"]"), world())
                .num_steps(),
            1);
  const std::string other = write_tokens(folder_ / "other.bin", 4999, 61);
  expect_refusal(ExitCode::data, {"other token files", "4999 tokens", "5000 tokens"},
                 [&] { SavedReference(folder_ / "saved", with("data.train=[\"" + other + "\"]"), world()); });
  expect_refusal(ExitCode::usage, {"holds a reference or checkpoints already"}, [&] { save(config_, 1); });
}

TEST_F(SavedReferences, DamageIsAnErrorOnAllRanks) {
  const auto open = [&] { SavedReference(folder_ / "saved", config_, world()); };
  expect_refusal(ExitCode::checkpoint, {"no saved reference"}, open);
  save(config_, 2);
  rewrite([](auto& tensors) { tensors.erase("exp_avg/final_norm.bias"); });
  expect_refusal(ExitCode::checkpoint, {"exp_avg/final_norm.bias"}, [&] { compare(config_); });
  on_root([&] {  // one bit of the data
    std::fstream file(step(2) / "rank-00000.h5", std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(step(2) / "rank-00000.h5") / 2);
    file.seekg(middle);
    const int byte = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(byte ^ 1));
  });
  expect_refusal(ExitCode::checkpoint, {}, [&] { compare(config_); });
  on_root([&] { std::filesystem::remove_all(step(1)); });
  expect_refusal(ExitCode::checkpoint, {"is missing", "step-00000002"}, open);
  on_root([&] { std::filesystem::remove(step(2) / "rank-00000.h5"); });
  expect_refusal(ExitCode::checkpoint, {"not complete"}, open);
}

TEST_F(SavedReferences, ARunsCheckpointIsNone) {
  const RunConfig config = config_in(folder_, "run");
  start_run(config, stop_after(1));
  on_root([&] {
    std::filesystem::copy(Path(config.run.directory) / "checkpoints", folder_ / "saved",
                          std::filesystem::copy_options::recursive);
  });
  expect_refusal(ExitCode::checkpoint, {"not a step of a saved reference"},
                 [&] { SavedReference(folder_ / "saved", config, world()); });
}

}  // namespace
}  // namespace espalier::test
