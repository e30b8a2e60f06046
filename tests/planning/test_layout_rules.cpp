// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/config/toml_config.hpp"
#include "parallel/mesh/mesh_layout.hpp"
#include "planning/layout_limits.hpp"
#include "tests/planning/problems.hpp"
#include "training/config/validate_config.hpp"

namespace espalier::test {
namespace {

ModelConfig model_of(Index layers, Index heads, Index kv_heads, Index channels, Index vocabulary) {
  ModelConfig model;
  model.num_layers = layers;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.hidden_size = 8 * heads;
  model.ffn_hidden_size = channels;
  model.vocab_size = vocabulary;
  model.max_sequence_length = 64;
  return in_one_spelling(model);
}

// What a config of that layout says: the problems of the config, each "layout: section.key: ...".
std::vector<std::string> refusals_of_train(RunConfig config, const Layout& layout, Index sequence_length, int ranks) {
  config.layout = layout;
  config.sequence_length = sequence_length;
  ConfigReader reader("", "layout", {});
  validate_run_config(config, reader, ranks);
  return reader.problems();
}

// Whether both refuse it or neither does, and with the same words.
void expect_agreement(const RunConfig& config, const PlanProblem& problem, const Layout& layout, int& refused) {
  const std::string planned = why_impossible(problem, layout);
  const std::vector<std::string> trained =
      refusals_of_train(config, layout, problem.sequence_length, layout.num_devices());
  ASSERT_EQ(planned.empty(), trained.empty()) << layout.text() << ": " << planned;
  if (planned.empty())
    return;
  ++refused;
  const std::size_t space = planned.find(' ');  // "tensor 3 cannot ..." is "parallel.tensor: 3 cannot ..."
  const std::string told = "." + planned.substr(0, space) + ":" + planned.substr(space);
  EXPECT_THAT(trained, testing::Contains(testing::HasSubstr(told))) << layout.text();
}

void expect_agreement_on(const ModelConfig& model, int ranks, Index sequence_length) {
  RunConfig config;
  config.model.shape = model;
  config.run.directory = "run";
  config.run.steps = 1;
  config.data.train = {"train.bin"};
  PlanProblem problem = problem_of("byte-1m", "a100-80:2", sequence_length);
  problem.model = model;
  ASSERT_EQ(problem.cluster.num_devices(), 16);
  int seen = 0;
  int refused = 0;
  Layout layout;
  for (const MeshLayout& mesh : layouts_by_distance(ranks, PerAxis::degrees(1, ranks, 1)))
    for (const int chunks : {1, 2, 3})
      for (const ScheduleKind schedule : schedule_kinds_with_lists())
        for (const Index micro_batch : {1, 3})
          for (const Index batch : {Index{12}, Index{48}, Index{16} << 16, Index{96} << 16})
            for (const bool sequence_parallel : {false, true}) {
              layout.tensor = mesh.degree(Axis::tp);
              layout.data = mesh.degree(Axis::dp);
              layout.pipeline = mesh.degree(Axis::pp);
              layout.virtual_stages = chunks;
              layout.schedule = schedule;
              layout.micro_batch = micro_batch;
              layout.global_batch = batch;
              layout.sequence_parallel = sequence_parallel;
              ++seen;
              expect_agreement(config, problem, layout, refused);
              if (testing::Test::HasFailure())
                return;
            }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, seen);
}

TEST(LayoutRules, plan_and_train_refuse_the_same_layouts_of_8_ranks) {
  expect_agreement_on(model_of(4, 4, 4, 64, 256), 8, 64);
  expect_agreement_on(model_of(12, 6, 2, 36, 256), 8, 15);
  expect_agreement_on(model_of(5, 8, 8, 60, 3), 8, 10);
}

TEST(LayoutRules, plan_and_train_refuse_the_same_layouts_of_16_ranks) {
  expect_agreement_on(model_of(8, 16, 2, 64, 256), 16, 16);
  expect_agreement_on(model_of(12, 12, 4, 64, 7), 16, 12);
}

TEST(LayoutRules, lists_have_an_entry_for_each_part_or_stage) {
  const PlanProblem problem = problem_of("gpt2-124m", "a100-80", 1024);
  Layout layout = layout_of("pipeline=2,virtual_stages=2", 8);
  layout.layers = {3, 3, 3, 3};
  EXPECT_EQ(why_impossible(problem, layout), "");
  layout.layers = {3, 3, 3, 4};
  EXPECT_EQ(why_impossible(problem, layout), "layers_per_stage adds up to 13, not to num_layers 12");
  layout.layers = {6, 6};
  EXPECT_EQ(why_impossible(problem, layout),
            "layers_per_stage has 2 numbers, wanted 4, one for each virtual stage: pipeline 2 x virtual_stages 2");
  layout.layers.clear();
  layout.recompute_per_stage = {Recompute::none, Recompute::full, Recompute::full};
  EXPECT_EQ(why_impossible(problem, layout),
            "recompute_per_stage has 3 entries, wanted one for each stage of pipeline 2");
}

TEST(LayoutRules, the_nearest_sizes_are_named_if_there_are_any) {
  PlanProblem problem = problem_of("gpt2-124m", "a100-80:1024", 1024);
  EXPECT_EQ(why_impossible(problem, layout_of("tensor=8192", 8)),
            "tensor 8192 cannot share num_heads 12 (nearest: tensor 12, num_heads 8192)");
  EXPECT_EQ(why_impossible(problem, layout_of("context=8192", 8)),
            "context 8192 does not divide sequence_length 1024 (nearest: 1024)");
  problem.sequence_length = problem.model.max_sequence_length = 1'000'003;  // a prime
  EXPECT_EQ(why_impossible(problem, layout_of("context=8192", 8)),
            "context 8192 does not divide sequence_length 1000003");
}

}  // namespace
}  // namespace espalier::test
