// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "models/part_layers.hpp"
#include "models/presets.hpp"
#include "planning/collective_time.hpp"
#include "planning/layout_limits.hpp"
#include "planning/layout_option.hpp"
#include "planning/layout_space.hpp"
#include "planning/runnable.hpp"
#include "training/prediction/predict_time.hpp"

using namespace espalier;
using testing::HasSubstr;

namespace {

TEST(LayoutOption, reads_a_proposal) {
  Layout start;
  start.global_batch = 64;
  const Layout layout = parse_layout(
      "data=4,tensor=8,context=2,pipeline=3,virtual_stages=2,micro_batch=2,recompute=full,zero=1,sequence_parallel="
      "true,precision=fp8",
      start);
  EXPECT_EQ(layout.num_devices(), 4 * 8 * 2 * 3);
  EXPECT_EQ(layout.num_microbatches(), 8);
  EXPECT_EQ(layout.schedule, ScheduleKind::interleaved);
  EXPECT_EQ(layout.recompute, Recompute::full);
  EXPECT_TRUE(layout.sequence_parallel);
  EXPECT_EQ(layout.precision, Precision::fp8);
  EXPECT_EQ(
      layout.text(),
      "tensor 8 x context 2 x data 4 x pipeline 3 (interleaved, 2 virtual stages), micro-batch 2, recompute full, "
      "ZeRO-1, sequence parallel, fp8");
}

TEST(LayoutOption, chunks_are_interleaved_unless_a_schedule_is_named) {
  EXPECT_EQ(parse_layout("pipeline=4,virtual_stages=2", {}).schedule, ScheduleKind::interleaved);
  for (const char* text : {"pipeline=4,virtual_stages=2,schedule=gpipe", "schedule=gpipe,virtual_stages=2,pipeline=4"})
    EXPECT_EQ(parse_layout(text, {}).schedule, ScheduleKind::gpipe) << text;
}

TEST(LayoutOption, a_key_given_twice_is_named_with_its_option) {
  for (const auto& [text, option] :
       {std::pair("tensor=8,tensor=4", "--layout"), {"data=1,tensor=8, tensor =4", "--fix"}})
    try {
      parse_layout(text, {}, option);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.report().what, std::string(option) + ": tensor is given twice");
      EXPECT_EQ(error.report().got, "tensor=8 and tensor=4");
    }
  EXPECT_THROW(layout_keys_in("zero=1,zero=1"), Error);
}

TEST(LayoutOption, blanks_beside_keys_and_values_are_nothing) {
  const Layout layout = parse_layout("tensor = 2, data= 4 ,sequence_parallel=true", {});
  EXPECT_EQ(layout.tensor, 2);
  EXPECT_EQ(layout.data, 4);
  EXPECT_TRUE(layout.sequence_parallel);
}

TEST(LayoutOption, refuses_what_it_cannot_read) {
  for (const char* bad : {"", " ", "sequence_parallel=2", "data", "data=", "data=0", "data=x", "data=4,", "dta=4",
                          "zero=4", "recompute=half", "schedule=best", "precision=fp12", "order=random"})
    EXPECT_THROW(parse_layout(bad, {}), Error) << bad;
  try {
    parse_layout("tesnor=4", {}, "--fix");
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.report().what, "--fix: unknown key");
    EXPECT_THAT(error.report().todo, HasSubstr("tensor"));
  }
}

// Each degree may be as large as a machine, their product too, and no larger: 2^32 would pass for no device at all.
TEST(LayoutOption, refuses_more_ranks_than_a_machine_has) {
  EXPECT_EQ(parse_layout("data=4096,context=4096", {}).num_devices(), 1 << 24);
  for (const char* const text : {"data=65536,context=65536", "data=4096,tensor=4096,pipeline=2",
                                 "data=16777216,tensor=16777216,context=16777216,pipeline=16777216"})
    try {
      parse_layout(text, {}, "--fix");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.report().what, "--fix: no machine has so many devices");
      EXPECT_EQ(error.report().wanted, "at most 16777216");
    }
}

// The words of a config and of JSON, and those that papers abbreviate with.
TEST(LayoutOption, other_words_for_a_key_are_understood) {
  const Layout layout =
      parse_layout("tp=2,cp=3,dp=4,pp=5,micro_batch_size=6,zero_stage=1,order=tp,pp,dp,recompute=full", {});
  EXPECT_EQ(layout.text(),
            "tensor 2 x context 3 x data 4 x pipeline 5 (1f1b), micro-batch 6, recompute full, ZeRO-1, bf16, stages on "
            "neighbouring ranks");
  EXPECT_TRUE(parse_layout("order=tp, dp, pp", {}).data_inside_pipeline());
  EXPECT_EQ(layout_keys_in("tp=2,order=tp,dp,pp"), (std::vector<std::string>{"tensor", "order"}));
  EXPECT_THROW(parse_layout("tp=2,tensor=2", {}), Error);
  EXPECT_THROW(parse_layout("tp,dp", {}), Error);
  try {
    parse_layout("global_batch=64", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.report().todo, "--batch gives the sequences of a step");
  }
}

// Ranks run tensor first, then context, data, pipeline [Megatron-LM's order]; or the pipeline before data.
TEST(LayoutOption, axes_lie_where_the_order_puts_them) {
  const Layout layout = parse_layout("tensor=4,data=8,pipeline=2", {});
  EXPECT_EQ(tensor_axis(layout).stride, 1);
  EXPECT_EQ(data_axis(layout).stride, 4);
  EXPECT_EQ(pipeline_axis(layout).stride, 32);
  const Layout other = parse_layout("tensor=4,data=8,pipeline=2,order=pipeline_first", {});
  EXPECT_EQ(pipeline_axis(other).stride, 4);
  const Cluster nodes_of_8 = cluster_preset("a100-80:8");
  EXPECT_EQ(data_axis(layout).per_node(nodes_of_8), 2);
  EXPECT_EQ(data_axis(other).per_node(nodes_of_8), 1);  // ranks 0, 8, 16, ... 56
  EXPECT_EQ(data_axis(other).num_nodes(nodes_of_8), 8);
}

// The gradients of ranks 0 and 2 (context) and of their replicas 8 and 10 are summed together; nodes have 8.
TEST(LayoutOption, context_ranks_belong_to_the_replicas) {
  const Cluster cluster = cluster_preset("a100-80:2");
  const Layout inside = parse_layout("tensor=2,context=2,pipeline=2,data=2", {});
  EXPECT_EQ(data_axis(inside).per_node(cluster), 4);
  EXPECT_FALSE(crosses_nodes(cluster, data_axis(inside)));
  const Layout apart = parse_layout("tensor=2,context=2,pipeline=2,data=2,order=pipeline_first", {});
  EXPECT_EQ(data_axis(apart).size, 4);
  EXPECT_EQ(data_axis(apart).per_node(cluster), 2);
  EXPECT_EQ(data_axis(apart).num_nodes(cluster), 2);
  const Layout wide = parse_layout("tensor=2,context=8,data=2,order=pipeline_first", {});
  EXPECT_EQ(data_axis(wide).per_node(cluster_preset("a100-80:4")), 4);  // the context ranks alone fill two nodes
  EXPECT_EQ(data_axis(wide).num_nodes(cluster_preset("a100-80:4")), 4);
}

TEST(LayoutOption, says_what_train_lacks_to_run_it) {
  EXPECT_EQ(why_not_runnable(parse_layout("data=2,tensor=2,pipeline=2,zero=3", {})), "");
  for (const auto& [layout, reason] : {std::pair("context=2", "context"),
                                       {"pipeline=2,schedule=zero_bubble_v", "zero_bubble_v"},
                                       {"data=2,precision=fp8", "fp8"}})
    EXPECT_THAT(why_not_runnable(parse_layout(layout, {})), HasSubstr(reason)) << layout;
  PlanProblem problem;
  problem.model = model_preset("gpt2-124m");
  EXPECT_EQ(why_not_runnable(problem, parse_layout("data=2", {})), "");
  problem.model = model_preset("llama3-8b");
  EXPECT_EQ(why_not_runnable(problem, parse_layout("data=2", {})), "");
  problem.model = model_preset("bloom-176b");
  const std::string of_model = why_not_runnable(problem, parse_layout("data=2", {}));
  EXPECT_THAT(of_model, HasSubstr("ALiBi"));
  const std::string of_both = why_not_runnable(problem, parse_layout("context=2", {}));
  EXPECT_EQ(of_both, of_model + "; " + why_not_runnable(parse_layout("context=2", {})));
}

// A layout that brings its layers may have the embedding and the head on parts of their own; none of a search has.
TEST(LayoutOption, every_part_has_a_layer) {
  PlanProblem problem;
  problem.model = model_preset("gpt2-124m");
  problem.cluster = cluster_preset("a100-80:2");
  Layout bare_ends = parse_layout("pipeline=7,virtual_stages=2", {.global_batch = 14});
  EXPECT_EQ(why_impossible(problem, bare_ends),
            "pipeline 7 x virtual_stages 2 = 14 parts are more than num_layers 12 (nearest: pipeline 6)");
  bare_ends.layers.assign(14, 1);
  bare_ends.layers.front() = bare_ends.layers.back() = 0;
  EXPECT_EQ(why_impossible(problem, bare_ends), "");
  EXPECT_GT(price_layout(problem, bare_ends).step_seconds, 0);
  LayoutSpace space{.num_devices = 14, .global_batch = 14};
  space.pipeline = 7;
  for (const Layout& layout : enumerate_layouts(problem, space))
    EXPECT_LE(layout.num_parts(), 12);
}

TEST(LayoutOption, the_space_holds_each_layout_once_and_keeps_what_is_fixed) {
  PlanProblem problem;
  problem.model = model_preset("gpt2-1558m");
  problem.cluster = cluster_preset("a100-80:2");
  LayoutSpace space{.num_devices = 16, .global_batch = 32};
  const std::vector<Layout> all = enumerate_layouts(problem, space);
  std::vector<std::string> texts;
  for (const Layout& layout : all) {
    EXPECT_EQ(layout.num_devices(), 16);
    texts.push_back(layout.text());
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
  fix_choices(space, "tensor=2,recompute=full,zero=1,micro_batch=2");
  const std::vector<Layout> some = enumerate_layouts(problem, space);
  EXPECT_LT(some.size(), all.size());
  ASSERT_FALSE(some.empty());
  for (const Layout& layout : some) {
    EXPECT_EQ(layout.tensor, 2);
    EXPECT_EQ(layout.recompute, Recompute::full);
    EXPECT_EQ(layout.micro_batch, 2);
  }
  for (const auto& [order, data_inside] : {std::pair("order=data_first", true), {"order=pipeline_first", false}}) {
    LayoutSpace ordered{.num_devices = 16, .global_batch = 32, .tries_orders = true};
    fix_choices(ordered, order);
    for (const Layout& layout : enumerate_layouts(problem, ordered))
      EXPECT_EQ(layout.data_inside_pipeline(), data_inside) << layout.text();
  }
}

// Nodes of 6 devices, replicas with 3 sequences: neither is a power of two.
TEST(LayoutOption, the_space_holds_every_degree_that_divides) {
  PlanProblem problem;
  problem.model = model_preset("gpt2-1558m");
  problem.cluster = cluster_preset("v100:4x6");
  std::set<int> tensors;
  std::set<Index> micro_batches;
  for (const Layout& layout : enumerate_layouts(problem, {.num_devices = 24, .global_batch = 72})) {
    tensors.insert(layout.tensor);
    if (layout.data == 24)
      micro_batches.insert(layout.micro_batch);
  }
  EXPECT_EQ(tensors, (std::set<int>{1, 2, 3, 4, 6, 8, 12}));
  EXPECT_EQ(micro_batches, (std::set<Index>{1, 3}));
}

// What `plan` recommends, a config says and `train` reads is one layout.
TEST(LayoutOption, every_runnable_layout_comes_back_from_its_config) {
  PlanProblem problem{.model = {.vocab_size = 64,
                                .max_sequence_length = 16,
                                .num_layers = 6,
                                .hidden_size = 32,
                                .num_heads = 4,
                                .ffn_hidden_size = 128},
                      .cluster = cluster_preset("a100-80:1"),
                      .implementation = espalier_implementation(),
                      .sequence_length = 16};
  const LayoutSpace space{.num_devices = 8,
                          .global_batch = 16,
                          .precisions = {Precision::bf16, Precision::fp16, Precision::fp32},
                          .only_runnable = true,
                          .tries_orders = true};
  std::vector<Layout> layouts = enumerate_layouts(problem, space);
  std::erase_if(layouts, [&](const Layout& layout) { return !why_impossible(problem, layout).empty(); });
  EXPECT_GT(layouts.size(), 500u);
  // And what a config alone can ask for.
  layouts.push_back({.tensor = 2,
                     .data = 2,
                     .pipeline = 2,
                     .global_batch = 16,
                     .recompute_per_stage = {Recompute::full, Recompute::none},
                     .order = {Axis::dp, Axis::pp, Axis::tp},
                     .layers = {2, 4}});
  EXPECT_EQ(layouts.back().short_text(), "tensor 2 x data 2 x pipeline 2, 1f1b, recompute full on stage 0");
  EXPECT_EQ(layouts.back().text(),
            "tensor 2 x data 2 x pipeline 2 (1f1b), micro-batch 1, recompute full on stage 0, ZeRO-0, bf16");
  for (const Layout& layout : layouts) {
    std::vector<std::string> settings = settings_of(layout);
    for (const auto& more : {model_keys(problem.model), {"data.train=[\"x\"]", "run.steps=1"}})
      settings.insert(settings.end(), more.begin(), more.end());
    const RunConfig config = parse_run_config("", "plan", settings, 8);
    Layout planned = layout;
    planned.layers = part_layers(problem.model, problem.sequence_length, layout);
    EXPECT_EQ(make_run_layout(config, 8), planned) << layout.text();
    EXPECT_EQ(parse_run_config(to_toml(config), "config.toml", {}, 8).layout, config.layout) << layout.text();
  }
}

}  // namespace
