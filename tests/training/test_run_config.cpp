// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "training/run_config.hpp"

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

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << text

TEST(RunConfig, ResolvesAndReadsBackEqual) {
  const RunConfig config = parse_run_config(good, "run.toml", {"optimizer.learning_rate=1e-4"}, 2);
  EXPECT_EQ(config.batch.sequence_length, config.model.shape.max_sequence_length);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-4);
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(parse_run_config(text, "resolved", {}, 2)), text);
}

TEST(RunConfig, StepsFromTokens) {
  const RunConfig config =
      parse_run_config(good, "run.toml", {"run.steps=0", "run.tokens=\"1M\"", "batch.sequence_length=100"}, 1);
  EXPECT_EQ(config.total_steps(), 625);
}

TEST(RunConfig, AllProblemsAtOnceWithTheirPositions) {
  const std::string text = error_of(good, {"model.hiden_size=64", "model.num_heads=5", "batch.global_batch_size=15",
                                           "batch.sequence_length=1000", "optimizer.beta1=\"high\"", "run.steps=-3"});
  EXPECT_CONTAINS(text, "hidden_size");
  EXPECT_CONTAINS(text, "hiden_size");
  EXPECT_CONTAINS(text, "not divisible by num_heads 5");
  EXPECT_CONTAINS(text, "nearest that are: 12 and 16");
  EXPECT_CONTAINS(text, "max_sequence_length 256");
  EXPECT_CONTAINS(text, "beta1");
  EXPECT_CONTAINS(text, "-3");
}

TEST(RunConfig, PositionInTheFile) { EXPECT_CONTAINS(error_of("[batch]\nmicro_batch_sise = 3\n" + good), "run.toml:"); }

TEST(RunConfig, LayoutThatDoesNotFitTheWorld) {
  EXPECT_CONTAINS(error_of(good, {"parallel.data=3"}, 4), "parallel.data");
  EXPECT_CONTAINS(error_of(good, {"parallel.tensor=3"}, 3), "num_heads: 4 cannot be shared by 3 ranks");
  EXPECT_CONTAINS(error_of(good, {"parallel.pipeline=8"}, 8), "8 stages are more than the 4 layers");
}

TEST(RunConfig, NothingToDo) { EXPECT_CONTAINS(error_of(good, {"run.steps=0"}), "neither steps nor tokens"); }

}  // namespace
}  // namespace espalier::test
