// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What a user is told whose model does not fit: what lowers the need, and the least that the ranks can do with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "models/recompute.hpp"
#include "tests/training/shape_config.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/require_memory.hpp"

namespace espalier::test {
namespace {

constexpr int num_ranks = 4;

// The memory of libraries, on GPUs 33 MiB, would hide what a small model needs.
RunConfig small_model(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"batch.micro_batch_size=2", "run.matmul=tiled"});
  return shape_config({.vocab_size = 61,
                       .max_sequence_length = 32,
                       .num_layers = 4,
                       .hidden_size = 64,
                       .num_heads = 4,
                       .ffn_hidden_size = 256},
                      num_ranks, more);
}

std::size_t need_of(const RunConfig& config) {
  const std::vector<MemoryByCategory> stages = predict_memory(config, make_run_layout(config, num_ranks));
  return stages.at(static_cast<std::size_t>(peak_stage(stages))).total();
}

// What require_memory() advises under a budget of so many bytes; empty: it lets the config pass.
std::string advice(RunConfig config, std::size_t budget) {
  config.run.device_memory = static_cast<Index>(budget);
  try {
    require_memory(config, make_run_layout(config, num_ranks));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
    return error.report().todo;
  }
  return {};
}

// The least of all layouts and settings, one by one.
std::size_t min_of_all(int heads) {
  const std::string model = fmt::format("model.num_heads={}", heads);
  std::size_t smallest = need_of(small_model({model}));
  for (int tensor = 1; tensor <= std::min(heads, num_ranks); tensor *= 2)
    for (int pipeline = 1; tensor * pipeline <= num_ranks; pipeline *= 2)
      for (const char* const schedule : {"1f1b", "gpipe", "sequential"})
        for (const Recompute mode : all_recompute_modes())
          for (const char* const compute : {"fp32", "bf16", "fp16"})
            for (const char* const wire : {"state", "compute"})
              for (const char* const sequence_parallel : {"false", "true"})
                for (const int micro_batch : {1, 2})
                  smallest = std::min(
                      smallest,
                      need_of(small_model({model, fmt::format("parallel.tensor={}", tensor),
                                           fmt::format("parallel.pipeline={}", pipeline), "parallel.zero_stage=1",
                                           fmt::format("parallel.schedule={}", schedule),
                                           fmt::format("parallel.recompute={}", to_string(mode)),
                                           fmt::format("precision.compute={}", compute),
                                           fmt::format("precision.gradient_reduction={}", wire),
                                           fmt::format("parallel.sequence_parallel={}", sequence_parallel),
                                           fmt::format("batch.micro_batch_size={}", micro_batch)})));
  return smallest;
}

TEST(RequireMemory, LeastIsThatOfTheLeanestOfAllSettings) {
  for (const int heads : {4, 1}) {  // one head: nothing but stages and replicas
    SCOPED_TRACE(heads);
    const RunConfig base = small_model({fmt::format("model.num_heads={}", heads)});
    const MemoryNeed least = least_memory(base, num_ranks);
    EXPECT_EQ(least.bytes, min_of_all(heads));
    EXPECT_EQ(need_of(least.config), least.bytes);
    EXPECT_LT(2 * least.bytes, need_of(base)) << "four ranks that share all need much less than four replicas";
    EXPECT_EQ(advice(least.config, least.bytes), "");
  }
}

// Stages keep as many micro-batches as the schedule lets be under way.
TEST(RequireMemory, TheScheduleIsASettingToo) {
  const RunConfig base =
      small_model({"model.num_heads=1", "parallel.pipeline=4", "parallel.schedule=gpipe", "batch.micro_batch_size=1"});
  const std::string never = advice(base, 1000);
  EXPECT_NE(never.find("parallel.schedule = '1f1b' ("), std::string::npos) << never;
  EXPECT_NE(never.find("parallel.schedule = 'sequential' ("), std::string::npos) << never;
}

TEST(RequireMemory, TellsTheLeastAndWhatLowersTheNeed) {
  const RunConfig base = small_model();
  const MemoryNeed least = least_memory(base, num_ranks);
  const std::string wanted =
      fmt::format("the minimum for this model on 4 ranks is {} per rank, with ", budget_text(least.bytes));
  const std::string almost = advice(base, least.bytes - 1);
  EXPECT_NE(almost.find(wanted), std::string::npos) << almost;
  const std::string never = advice(base, 1000);
  for (const std::string& part :
       {wanted, std::string("to need less memory: "), std::string("parallel.zero_stage = 1 ("),
        std::string("parallel.recompute = 'full' ("), std::string("batch.micro_batch_size = 1 ("),
        std::string("no layout of up to"), std::string("raise run.device_memory")})
    EXPECT_NE(never.find(part), std::string::npos) << part << " is missing in\n" << never;
  const std::string together = advice(base, least.bytes);
  EXPECT_NE(together.find("per rank, which fits, with "), std::string::npos) << together;
}

// The least is rarely a whole number of tenths: rounded to the nearest, every other one would not do.
TEST(RequireMemory, TheLeastIsEnoughAsItIsPrinted) {
  for (const int hidden_size : {64, 80, 96, 112, 128}) {
    const RunConfig base = small_model({fmt::format("model.hidden_size={}", hidden_size)});
    const std::string text = advice(base, 1000);
    const std::string before = "the minimum for this model on 4 ranks is ";
    const std::size_t begin = text.find(before) + before.size();
    const std::string printed = text.substr(begin, text.find(" per rank", begin) - begin);
    const std::optional<Index> typed = parse_bytes(printed);
    ASSERT_TRUE(typed) << printed;
    EXPECT_EQ(advice(least_memory(base, num_ranks).config, static_cast<std::size_t>(*typed)), "") << printed;
  }
}

TEST(RequireMemory, OneSettingThatIsEnoughIsNamedFirst) {
  const RunConfig base = small_model();
  const std::string text = advice(base, need_of(small_model({"parallel.zero_stage=1"})));
  EXPECT_EQ(text.find("to need less memory"), std::string::npos) << text;
  EXPECT_NE(text.find("parallel.zero_stage = 1 would fit ("), std::string::npos) << text;
  EXPECT_EQ(advice(base, need_of(base)), "");
}

}  // namespace
}  // namespace espalier::test
