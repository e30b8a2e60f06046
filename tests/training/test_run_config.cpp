// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <sstream>

#include "tests/io/support.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/emulation.hpp"
#include "training/config/run_config.hpp"
#include "training/prediction/predict_memory.hpp"

namespace espalier::test {
namespace {

const std::string good = R"([model]
preset = "byte-1m"
[data]
train = ["train.bin"]
[batch]
global_batch_size = 16
micro_batch_size = 4
[run]
steps = 100
)";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}, int ranks = 1) {
  try {
    parse_run_config(text, "run.toml", overrides, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text) << ' '

TEST(RunConfig, ResolvesAndReadsBackEqual) {
  const RunConfig config = parse_run_config(good, "run.toml", {"optimizer.learning_rate=1e-4"}, 2);
  EXPECT_EQ(config.sequence_length, config.model.shape.max_sequence_length);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-4);
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(parse_run_config(text, "resolved", {}, 2)), text);
}

TEST(RunConfig, OneModelInTwoSpellingsIsOneConfig) {
  const RunConfig derived = parse_run_config(good, "run.toml", {}, 1);
  const ModelConfig& model = derived.model.shape;
  const RunConfig given = parse_run_config(
      good, "run.toml",
      {fmt::format("model.num_kv_heads={}", model.kv_heads()), fmt::format("model.head_dim={}", model.head_size())}, 1);
  EXPECT_EQ(given.model.shape, model);
  EXPECT_EQ(to_toml(given), to_toml(derived));
}

// A record of what was run.
TEST(RunConfig, EmulationIsWrittenWhereItIsOn) {
  EXPECT_EQ(to_toml(RunConfig{}).find("emulate"), std::string::npos);
  const RunConfig config = parse_run_config(good, "run.toml", {"emulate.forward=0.5", "emulate.part_percent=[10]"}, 1);
  const std::string text = to_toml(config);
  EXPECT_CONTAINS(text, "\n[emulate]\nforward = 0.5 ");
  EXPECT_CONTAINS(text, "\npart_percent = [10] ");
  EXPECT_EQ(text.find("latency"), std::string::npos) << text;
  EXPECT_EQ(parse_run_config(text, "resolved", {}, 1).emulate, config.emulate);
}

TEST(RunConfig, StepsFromTokens) {
  const RunConfig config =
      parse_run_config(good, "run.toml", {"run.steps=0", "run.tokens=\"1M\"", "batch.sequence_length=100"}, 1);
  EXPECT_EQ(config.total_steps(), 625);
}

TEST(RunConfig, NoKeyTakesWhatIsNotFinite) {
  std::istringstream lines(to_toml(RunConfig{}) + all_emulate_keys());
  std::string section;
  int num_keys = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('['))
      section = line.substr(1, line.find(']') - 1);
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == std::string::npos ||
        !std::isdigit(static_cast<unsigned char>(line[equals + 3])))
      continue;
    const std::string key = section + "." + line.substr(0, equals);
    ++num_keys;
    for (const std::string value : {"nan", "-nan", "inf", "-inf"})
      EXPECT_CONTAINS(error_of(good, {key + "=" + value}), key) << value;
  }
  EXPECT_GT(num_keys, 50);
}

TEST(RunConfig, AllProblemsAtOnceWithTheirPositions) {
  const std::string text = error_of(good, {"model.num_layer=3", "model.num_heads=5", "batch.global_batch_size=15",
                                           "batch.sequence_length=1000", "optimizer.beta1=\"high\"", "run.steps=-3"});
  EXPECT_CONTAINS(text, "model.num_layer: unknown key; did you mean \"num_layers\"?");
  EXPECT_CONTAINS(text, "not divisible by num_heads 5");
  EXPECT_CONTAINS(text, "nearest: 12 or 16, or micro_batch_size 1");
  EXPECT_CONTAINS(text, "max_sequence_length 256");
  EXPECT_CONTAINS(text, "beta1");
  EXPECT_CONTAINS(text, "-3");
}

// What a default does in the place of a refused value is no problem of the config.
TEST(RunConfig, ConsequencesOfARefusedValueAreNoProblems) {
  EXPECT_CONTAINS(error_of(good, {"run.steps=abc"}), "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"batch.micro_batch_size=abc", "batch.global_batch_size=5"}, 2),
                  "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"model.preset=gpt9", "batch.sequence_length=1024"}), "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"parallel.tensor=abc", "parallel.data=2"}, 3), "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"parallel.tensor=abc"}, 3), "the config has a problem\n");  // 16 / 4 on 3 replicas
  EXPECT_CONTAINS(error_of(good, {"parallel.tensor=abc", "parallel.data=3"}, 3), "the config has 2 problems\n");
  EXPECT_CONTAINS(error_of(good, {"model.num_heads=-1", "model.hidden_size=130"}), "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"run.steps=abc", "batch.global_batch_size=5"}), "the config has 2 problems\n");
}

TEST(RunConfig, WhatDoesNotRestOnARefusedValueIsStillToldWithIt) {
  EXPECT_CONTAINS(error_of(good, {"model.num_layers=abc", "model.num_heads=5"}), "the config has 2 problems\n");
  EXPECT_CONTAINS(error_of(good, {"model.residual_dropout=1", "model.num_heads=5"}), "the config has 2 problems\n");
  EXPECT_CONTAINS(error_of(good, {"run.stepps=10", "run.steps=0"}), "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"batch.global_batchsize=6", "batch.micro_batch_size=3"}),
                  "the config has a problem\n");
  EXPECT_CONTAINS(error_of(good, {"model.preset=gpt9", "parallel.pipeline=64"}, 64), "the config has a problem\n");
}

TEST(RunConfig, PositionInTheFile) { EXPECT_CONTAINS(error_of("[batch]\nmicro_batch_sise = 3\n" + good), "run.toml:"); }

TEST(RunConfig, LayoutThatDoesNotFitTheWorld) {
  EXPECT_CONTAINS(error_of(good, {"parallel.data=3"}, 4), "parallel.data");
  EXPECT_CONTAINS(error_of(good, {"parallel.tensor=3"}, 3), "parallel.tensor: 3 cannot share num_heads 4");
  EXPECT_CONTAINS(error_of(good, {"parallel.pipeline=8"}, 8),
                  "parallel.pipeline: 8 x virtual_stages 1 = 8 parts are more than num_layers 4");
}

// What is advised passes the checks of this config: the ranks that were forgotten, or layouts of those that there are.
TEST(RunConfig, ModelsThatCannotBe) {
  EXPECT_CONTAINS(error_of(good, {"model.position=alibi"}),
                  "model.position: got \"alibi\", wanted \"rotary\" or \"learned\": ALiBi can be planned, not trained");
  EXPECT_CONTAINS(error_of(good, {"model.num_kv_heads=3"}), "num_heads: 4 is not divisible by num_kv_heads 3");
  const std::vector<std::string> rotary = {"model.position=rotary"};
  EXPECT_CONTAINS(error_of(good, {rotary[0], "model.head_dim=25"}), "head_dim: is 25, wanted an even number");
  EXPECT_CONTAINS(error_of(good, {rotary[0], "rotary.size=7"}), "rotary.size: is 7, wanted an even number");
  EXPECT_CONTAINS(error_of(good, {rotary[0], "rotary.scaling=llama3", "rotary.factor=2"}), "original_length: is 0");
  EXPECT_CONTAINS(error_of(good,
                           {"model.num_kv_heads=2", "model.num_heads=6", "model.hidden_size=24",
                            "model.ffn_hidden_size=24", "parallel.tensor=3"},
                           3),
                  "parallel.tensor: 3 cannot share num_kv_heads 2");
}

TEST(RunConfig, AdviceOnALayoutCanBeFollowed) {
  const std::string forgotten = error_of(good, {"parallel.tensor=2", "parallel.pipeline=2"}, 1);
  EXPECT_CONTAINS(forgotten, "command line: parallel.tensor: tensor 2 x pipeline 2 takes 4 ranks or a multiple");
  EXPECT_CONTAINS(forgotten, "there is 1; start on 4 ranks or a multiple: mpiexec -n 4");
  EXPECT_CONTAINS(forgotten, "--dry-run --ranks 4");
  EXPECT_EQ(forgotten.find("nearest"), std::string::npos) << forgotten;
  EXPECT_EQ(error_of(good, {"parallel.tensor=2", "parallel.pipeline=2"}, 4), "");

  // Four heads and four layers: neither tensor 3 or 6 nor pipeline 6.
  const std::string six = error_of(good, {"parallel.tensor=4", "parallel.pipeline=2", "batch.micro_batch_size=1"}, 6);
  EXPECT_CONTAINS(six, "nearest layouts of 6 ranks that fit: tensor 2 x data 1 x pipeline 3;");
  EXPECT_CONTAINS(six, "or start on 8 ranks");
  EXPECT_EQ(six.find("tensor 3 x"), std::string::npos) << six;
  EXPECT_EQ(six.find("tensor 6 x"), std::string::npos) << six;
  EXPECT_EQ(six.find("pipeline 6"), std::string::npos) << six;
  EXPECT_EQ(error_of(good, {"parallel.tensor=3", "parallel.pipeline=5"}, 8).find("pipeline 8"), std::string::npos);
  EXPECT_CONTAINS(error_of(good, {"parallel.pipeline=4"}, 11), "no layout of 11 ranks fits this model and batch");
  EXPECT_CONTAINS(error_of(good, {"parallel.order=\"tp,pp\""}), "command line: parallel.order: got \"tp,pp\"");
}

TEST(RunConfig, TheRunHasADirectory) {
  EXPECT_CONTAINS(error_of(good, {"run.directory=\"\"", "run.steps=-1"}), "run.directory: is empty");
}

TEST(RunConfig, TheRunIsCalledAsItsDirectory) {
  RunConfig config;
  for (const char* const directory : {"runs/one", "runs/one/", "runs/one//", "./runs/two/../one/.", "/runs/one/"}) {
    config.run.directory = directory;
    EXPECT_EQ(config.run_name(), "one") << directory;
  }
  config.run.directory = ".";
  EXPECT_EQ(config.run_name(), std::filesystem::current_path().filename());
}

TEST(RunConfig, RecomputationByStage) {
  const RunConfig config = parse_run_config(
      good, "run.toml", {"parallel.pipeline=2", "parallel.recompute_per_stage=[\"full\", \"none\"]"}, 2);
  EXPECT_EQ(config.layout.recompute_per_stage, (std::vector<Recompute>{Recompute::full, Recompute::none}));
  EXPECT_EQ(to_toml(parse_run_config(to_toml(config), "resolved", {}, 2)), to_toml(config));
  const std::string text = error_of(good,
                                    {"parallel.pipeline=2", "parallel.recompute=sometimes", "model.num_heads=5",
                                     "parallel.recompute_per_stage=[\"full\", \"none\", \"selektive\"]"},
                                    2);
  EXPECT_CONTAINS(text, "one of \"none\", \"selective\", \"full\"");
  EXPECT_CONTAINS(text, "recompute_per_stage: has 3 entries, wanted one for each stage of pipeline 2");
  EXPECT_CONTAINS(text, "got \"selektive\" for stage 2");
  EXPECT_CONTAINS(text, "did you mean \"selective\"?");
  EXPECT_CONTAINS(text, "not divisible by num_heads 5");
  const std::string without_layers = error_of(
      good, {"parallel.pipeline=2", "parallel.layers_per_stage=[0, 4]", "parallel.recompute_per_stage=[\"full\"]"}, 2);
  EXPECT_CONTAINS(without_layers, "layers_per_stage: got 0 at place 1");
  EXPECT_CONTAINS(without_layers, "has 1 entries");
}

// Every key of the config, as `espalier train --keys` prints it, and those of [emulate]: section.key and its default.
std::vector<std::pair<std::string, std::string>> all_keys() {
  std::vector<std::pair<std::string, std::string>> keys;
  std::istringstream text(to_toml(RunConfig{}) + all_emulate_keys());
  std::string section;
  for (std::string line; std::getline(text, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with("["))
      section = line.substr(1, line.find(']') - 1);
    else if (!line.starts_with("#") && equals != std::string::npos)
      keys.emplace_back(section + "." + line.substr(0, equals), line.substr(equals + 3, line.find(" #") - equals - 3));
  }
  return keys;
}

TEST(RunConfig, RealNumbersAreFiniteAndInTheirRange) {
  int reals = 0;
  for (const auto& [key, value] : all_keys()) {
    if (value.find('"') != std::string::npos || value.find_first_of(".e") == std::string::npos ||
        value.find_first_of("tf[") != std::string::npos)
      continue;
    ++reals;
    for (const char* const wrong : {"nan", "inf", "-inf", "-1", "-0.5"}) {
      const std::string text = error_of(good, {key + "=" + wrong});
      EXPECT_CONTAINS(text, key + ": got " + wrong);
      if (wrong[0] != '-' || wrong[1] == 'i')
        EXPECT_TRUE(text.find("wanted a finite number") != std::string::npos ||
                    text.find(" at most ") != std::string::npos)
            << text;
      else
        EXPECT_TRUE(text.find("wanted at least ") != std::string::npos ||
                    text.find("wanted more than 0") != std::string::npos ||
                    (key.ends_with("_loss_scale") && text.find("wanted a ") != std::string::npos))
            << text;
    }
  }
  EXPECT_GT(reals, 15);
}

TEST(RunConfig, AbsurdNumbersAreRefusedByTheirKeys) {
  for (const auto& [key, value] : all_keys()) {
    if (value.find_first_not_of("0123456789") != std::string::npos)
      continue;
    for (const char* const wrong : {"-1", "9223372036854775807", "4611686018427387904"}) {
      if (key == "run.seed" && wrong[0] != '-')
        continue;  // any positive number will do
      const std::string text = error_of(good, {key + "=" + wrong});
      EXPECT_CONTAINS(text, key + ": got " + wrong);
    }
  }
}

TEST(RunConfig, WhatSeveralKeysMakeTogetherCanBeCounted) {
  const std::vector<std::string> largest = {"model.max_sequence_length=16777216", "model.num_layers=16384",
                                            "model.hidden_size=262144",           "model.ffn_hidden_size=1048576",
                                            "batch.global_batch_size=16777216",   "batch.micro_batch_size=16777216"};
  EXPECT_CONTAINS(error_of(good, largest), "more bytes than can be counted");
  EXPECT_CONTAINS(error_of(good, {"run.steps=1125899906842624", "batch.global_batch_size=32"}),
                  "more tokens than can be counted");
  EXPECT_CONTAINS(error_of(good, {"batch.global_batch_size=16777216", "batch.micro_batch_size=1"}), "micro-batches");
  EXPECT_CONTAINS(error_of(good, {"model.num_layers=1000000"}), "model.num_layers: got 1000000, wanted 1 to 16384");
}

TEST(RunConfig, TheLowestLearningRateFollowsThePeak) {
  EXPECT_EQ(parse_run_config(good, "run.toml", {}, 1).optimizer.minimum_learning_rate,
            RunConfig{}.optimizer.minimum_learning_rate);
  EXPECT_EQ(parse_run_config(good, "run.toml", {"optimizer.learning_rate=1e-6"}, 1).optimizer.minimum_learning_rate,
            1e-7);
  EXPECT_EQ(parse_run_config(good, "run.toml", {"optimizer.minimum_learning_rate=0"}, 1).learning_rate().minimum, 0);
  EXPECT_CONTAINS(error_of(good, {"optimizer.minimum_learning_rate=1e-3"}), "is above learning_rate");
}

// As docs/config.md says: "step at which the minimum is reached; 0: the last one".
TEST(RunConfig, TheLastStepHasTheLowestLearningRate) {
  for (const char* const schedule : {"cosine", "linear", "warmup_stable_decay"})
    for (const Index warmup : {0, 7})
      for (const Index decay : {0, 60}) {
        const RunConfig config = parse_run_config(
            good, "run.toml",
            {fmt::format("optimizer.schedule={}", schedule), "run.steps=100", "run.tokens=0",
             fmt::format("optimizer.warmup_steps={}", warmup), fmt::format("optimizer.decay_steps={}", decay)},
            1);
        const LearningRate rate = config.learning_rate();
        const Index last = decay > 0 ? decay : 100;
        EXPECT_EQ(rate.at(warmup), config.optimizer.learning_rate) << schedule;
        EXPECT_GT(rate.at(last - 2), 1.0001 * config.optimizer.minimum_learning_rate) << schedule;
        EXPECT_NEAR(rate.at(last - 1), config.optimizer.minimum_learning_rate, 1e-12) << schedule;
        EXPECT_NEAR(rate.at(99), config.optimizer.minimum_learning_rate, 1e-12) << schedule;
      }
  const RunConfig stable = parse_run_config(
      good, "run.toml", {"optimizer.schedule=warmup_stable_decay", "run.steps=100", "run.tokens=0"}, 1);
  EXPECT_EQ(stable.learning_rate().at(79), stable.optimizer.learning_rate) << "step 80: stable_fraction is 0.8";
  EXPECT_LT(stable.learning_rate().at(80), stable.optimizer.learning_rate);
}

// A config that says nothing about micro-batches runs on any number of ranks that the batch can be shared by.
TEST(RunConfig, AMicroBatchThatIsNotGivenFitsTheRanks) {
  const std::string shortest = "[data]\ntrain = [\"train.bin\"]\n[run]\nsteps = 1\n";
  const auto size_on = [&](int ranks, const std::vector<std::string>& overrides) {
    return parse_run_config(shortest, "run.toml", overrides, ranks).layout.micro_batch;
  };
  EXPECT_EQ(size_on(1, {}), 8);
  EXPECT_EQ(size_on(2, {}), 4);
  EXPECT_EQ(size_on(8, {}), 1);
  EXPECT_EQ(size_on(2, {"batch.global_batch_size=22"}), 1);
  EXPECT_EQ(size_on(2, {"batch.global_batch_size=36"}), 6);
  EXPECT_EQ(size_on(2, {"parallel.pipeline=2"}), 4) << "a micro-batch for each stage";
  EXPECT_EQ(size_on(4, {"parallel.tensor=2", "batch.global_batch_size=64"}), 8);
  EXPECT_CONTAINS(error_of(shortest, {}, 3), "nearest: 6 or 9");
  EXPECT_CONTAINS(error_of(shortest, {"batch.micro_batch_size=4"}, 4), "nearest: 16, or micro_batch_size 2");
  EXPECT_CONTAINS(error_of(shortest, {"batch.micro_batch_size=0"}), "batch.micro_batch_size: got 0");
  EXPECT_CONTAINS(error_of(shortest, {"parallel.data=2"}, 4),
                  "nearest layouts of 4 ranks that fit: tensor 1 x data 4 x pipeline 1;");
}

TEST(RunConfig, WeightsFitTheFilesAndAddUp) {
  const std::string two = "[data]\ntrain = [\"a\", \"b\"]\n[run]\nsteps = 1\n";
  EXPECT_EQ(error_of(two, {"data.weights=[0.7, 0.3]"}), "");
  EXPECT_EQ(error_of(two, {"data.weights=[0.3334, 0.667]"}), "");
  EXPECT_EQ(error_of(two, {"data.epochs=[1, 2.5]"}), "");
  EXPECT_CONTAINS(error_of(two, {"data.weights=[0.7, 0.5]"}), "data.weights: they add up to 1.2, wanted 1");
  EXPECT_CONTAINS(error_of(two, {"data.weights=[1.0]"}), "data.weights: 1 numbers for 2 entries of data.train");
  EXPECT_CONTAINS(error_of(two, {"data.epochs=[1, 2, 3]"}), "data.epochs: 3 numbers for 2 entries of data.train");
  EXPECT_CONTAINS(error_of(two, {"data.weights=[1.5, -0.5]"}), "data.weights: got -0.5 at place 2, wanted at least 0");
  EXPECT_CONTAINS(error_of(two, {"data.epochs=[0, 0]"}), "data.epochs: all are 0");
  EXPECT_CONTAINS(error_of(two, {"data.weights=[0.7, 0.3]", "data.epochs=[1, 2]"}), "exclude each other");
  EXPECT_CONTAINS(error_of(two, {"data.weights=[\"a\"]"}), "a list of numbers, like [0.5, 2]");
  EXPECT_CONTAINS(error_of(two, {"data.validation=[\"c\"]", "data.validation_fraction=0.1"}),
                  "data.validation_fraction: ");
  EXPECT_CONTAINS(error_of(two, {"model.vocab_size=300", "data.document_end=300"}), "data.document_end: 300");
  const RunConfig config = parse_run_config(two, "run.toml", {"data.weights=[0.7, 0.3]"}, 1);
  EXPECT_CONTAINS(to_toml(config), "weights = [0.7, 0.3]");
  EXPECT_EQ(parse_run_config(to_toml(config), "again", {}, 1).data.weights, config.data.weights);
}

TEST(RunConfig, TheDecayEndsAfterTheWarmUp) {
  EXPECT_CONTAINS(error_of(good, {"optimizer.warmup_steps=50", "optimizer.decay_steps=49"}), "optimizer.decay_steps");
  EXPECT_EQ(error_of(good, {"optimizer.warmup_steps=50", "optimizer.decay_steps=50"}), "");
}

TEST(RunConfig, LossScalesArePowersOfTwo) {
  EXPECT_EQ(error_of(good, {"precision.compute=fp16", "precision.initial_loss_scale=1024"}), "");
  EXPECT_CONTAINS(error_of(good, {"precision.initial_loss_scale=1000"}),
                  "wanted a power of two of at most 4294967296 (2^32); near it: 512");
  EXPECT_CONTAINS(error_of(good, {"precision.initial_loss_scale=1e9"}), "(2^32); near it: 536870912");
  EXPECT_CONTAINS(error_of(good, {"precision.initial_loss_scale=8589934592"}), "(2^32); near it: 4294967296");
  EXPECT_EQ(error_of(good, {"precision.compute=fp16", "precision.initial_loss_scale=4294967296"}), "");
  EXPECT_CONTAINS(error_of(good, {"precision.initial_loss_scale=0"}),
                  "precision.initial_loss_scale: got 0, wanted a power of two");
  EXPECT_CONTAINS(error_of(good, {"precision.initial_loss_scale=2", "precision.minimum_loss_scale=4"}),
                  "4 is above initial_loss_scale 2");
}

TEST(RunConfig, InjectedFaultsNameRanksOfTheWorld) {
  EXPECT_CONTAINS(error_of(good, {"emulate.slow_rank=2"}, 2), "there is no rank 2 of 2");
  EXPECT_CONTAINS(error_of(good, {"emulate.delayed_link=[0,2]"}, 2), "[0, 2] are not two ranks of 2");
  EXPECT_CONTAINS(error_of(good, {"emulate.delayed_link=[1,1]"}, 2), "not two ranks");
  EXPECT_CONTAINS(error_of(good, {"emulate.delayed_link=[1]"}, 2), "not two ranks");
  EXPECT_EQ(error_of(good, {"emulate.delayed_link=[1,0]", "emulate.slow_rank=1"}, 2), "");
}

// cuDNN's attention needs a GPU, OpenBLAS the memory of the host: every build lacks one of the two.
TEST(RunConfig, OnlyWhoComputesNeedsTheLibraries) {
  const std::string absent = exec_is_host ? "run.attention=cudnn" : "run.matmul=openblas";
  const std::string key = exec_is_host ? "run.attention" : "run.matmul";
  EXPECT_CONTAINS(error_of(good, {absent}), key + ": \"");
  EXPECT_CONTAINS(error_of(good, {absent}), "is not in this build, which has \"auto\"");
  const RunConfig config = parse_run_config(good, "run.toml", {absent}, 1, Libraries::known);
  ASSERT_EQ(absent_libraries(config).size(), 1U);
  EXPECT_EQ("run." + absent_libraries(config).front().first, key);
  EXPECT_CONTAINS(config_warnings(config, 1).back(), "a run needs one that has it; memory is predicted without");
  EXPECT_GT(predict_memory(config, make_run_layout(config, 1)).front().total(), 0U);
  ConfigReader reader(to_toml(config), "config.toml", {});  // of `diagnose` and `report`
  EXPECT_EQ(to_toml(read_resolved_config(reader)), to_toml(config));
  EXPECT_FALSE(reader.has_problems());
  EXPECT_CONTAINS(error_of(good, {"run.matmul=cublass"}), "one of \"auto\"");
}

TEST(RunConfig, NothingToDo) { EXPECT_CONTAINS(error_of(good, {"run.steps=0"}), "neither steps nor tokens"); }

}  // namespace
}  // namespace espalier::test
