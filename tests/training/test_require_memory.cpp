// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What a user is told whose model does not fit: what lowers the need, and the least that the ranks can do with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "models/recompute.hpp"
#include "training/predict_memory.hpp"
#include "training/require_memory.hpp"

namespace espalier::test {
namespace {

constexpr int ranks = 4;

RunConfig small_model(const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {"model.vocab_size=61",      "model.max_sequence_length=32",
                                   "model.num_layers=4",       "model.hidden_size=64",
                                   "model.num_heads=4",        "model.ffn_hidden_size=256",
                                   "data.train=[\"none\"]",    "batch.global_batch_size=8",
                                   "batch.micro_batch_size=2", "run.steps=1"};
  keys.insert(keys.end(), more.begin(), more.end());
  return parse_run_config("", "small_model", keys, ranks);
}

std::size_t need_of(const RunConfig& config) {
  const std::vector<MemoryByCategory> stages = predict_memory(config, make_run_layout(config, ranks));
  return stages.at(static_cast<std::size_t>(fullest_stage(stages))).total();
}

// What require_memory() advises under a budget of so many bytes; empty: it lets the config pass.
std::string advice(RunConfig config, std::size_t budget) {
  config.run.device_memory = static_cast<Index>(budget);
  try {
    require_memory(config, make_run_layout(config, ranks));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
    return error.report().todo;
  }
  return {};
}

TEST(RequireMemory, LeastIsThatOfTheLeanestOfAllSettings) {
  const RunConfig base = small_model();
  std::size_t smallest = need_of(base);
  for (const int tensor : {1, 2, 4})
    for (int pipeline = 1; tensor * pipeline <= ranks; pipeline *= 2)
      for (const Recompute mode : all_recompute_modes())
        for (const char* const compute : {"fp32", "bf16", "fp16"})
          for (const char* const wire : {"state", "compute"})
            for (const char* const sequence_parallel : {"false", "true"})
              for (const int micro_batch : {1, 2})
                smallest = std::min(
                    smallest,
                    need_of(small_model({fmt::format("parallel.tensor={}", tensor),
                                         fmt::format("parallel.pipeline={}", pipeline), "parallel.zero_stage=1",
                                         fmt::format("parallel.recompute={}", to_string(mode)),
                                         fmt::format("precision.compute={}", compute),
                                         fmt::format("precision.gradient_reduction={}", wire),
                                         fmt::format("parallel.sequence_parallel={}", sequence_parallel),
                                         fmt::format("batch.micro_batch_size={}", micro_batch)})));
  const MemoryNeed least = least_memory(base, ranks);
  EXPECT_EQ(least.bytes, smallest);
  EXPECT_EQ(need_of(least.config), least.bytes);
  EXPECT_LT(2 * least.bytes, need_of(base)) << "four ranks that share all need much less than four replicas";
  EXPECT_EQ(advice(least.config, least.bytes), "");
}

TEST(RequireMemory, TellsTheLeastAndWhatLowersTheNeed) {
  const RunConfig base = small_model();
  const MemoryNeed least = least_memory(base, ranks);
  const std::string wanted =
      fmt::format("the least that this model needs on 4 ranks is {} a rank, with ", bytes_text(least.bytes));
  const std::string almost = advice(base, least.bytes - 1);
  EXPECT_NE(almost.find(wanted), std::string::npos) << almost;
  const std::string never = advice(base, 1000);
  for (const std::string& part :
       {wanted, std::string("what lowers the need: "), std::string("parallel.zero_stage = 1 ("),
        std::string("parallel.recompute = 'full' ("), std::string("batch.micro_batch_size = 1 ("),
        std::string("no layout of up to"), std::string("raise run.device_memory")})
    EXPECT_NE(never.find(part), std::string::npos) << part << " is missing in\n" << never;
  const std::string together = advice(base, least.bytes);
  EXPECT_NE(together.find("a rank, which fits, with "), std::string::npos) << together;
}

TEST(RequireMemory, OneSettingThatIsEnoughIsNamedFirst) {
  const RunConfig base = small_model();
  const std::string text = advice(base, need_of(small_model({"parallel.zero_stage=1"})));
  EXPECT_EQ(text.find("what lowers"), std::string::npos) << text;
  EXPECT_NE(text.find("parallel.zero_stage = 1 would fit ("), std::string::npos) << text;
  EXPECT_EQ(advice(base, need_of(base)), "");
}

}  // namespace
}  // namespace espalier::test
