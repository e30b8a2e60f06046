// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/presets.hpp"
#include "planning/layout_option.hpp"
#include "planning/memo.hpp"
#include "planning/mitigation.hpp"

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

namespace {

// `train` has no fp8: never proposed among what it runs, else after all that it runs, and marked.
TEST(Mitigation, what_train_lacks_is_not_tried_first) {
  const PlanProblem problem = {.model = model_preset("gpt-22b"),
                               .cluster = cluster_preset("h100:4"),
                               .implementation = espalier_implementation(),
                               .sequence_length = 2048};
  LayoutSpace space{.num_devices = 32, .global_batch = 512, .only_runnable = true};
  const auto fp8 = [&](const std::vector<Mitigation>& options) {
    return std::find_if(options.begin(), options.end(),
                        [](const Mitigation& option) { return option.price.layout.precision == Precision::fp8; });
  };
  const SearchResult runnable = search_layouts(problem, space);
  const std::vector<Mitigation> run = mitigations(problem, space, runnable.ranking.front());
  EXPECT_EQ(fp8(run), run.end());
  for (const Mitigation& option : run)
    EXPECT_EQ(option.lacks, "") << option.change;
  EXPECT_THAT(memo(problem, space, runnable, {}), Not(HasSubstr("Priced only")));
  space.only_runnable = false;
  const std::vector<Mitigation> all = mitigations(problem, space, runnable.ranking.front());
  const auto found = fp8(all);
  ASSERT_NE(found, all.end());
  EXPECT_TRUE(found->helps());
  EXPECT_EQ(found->lacks, "train does not compute in fp8 yet");
  EXPECT_EQ(found->condition, "if precision may change");
  for (auto later = found; later != all.end(); ++later)
    EXPECT_FALSE(later->is_ready() && later->relieves_bottleneck() >= found->relieves_bottleneck() && later->helps())
        << later->change;
  EXPECT_THAT(memo(problem, space, runnable, {}), Not(HasSubstr("ry products in fp8")));
}

// A long sequence: ranks that share it answer what tensor ranks wait for.
TEST(Mitigation, context_parallelism_is_among_the_changes) {
  const PlanProblem problem = {.model = model_preset("gpt-22b"),
                               .cluster = cluster_preset("h100:2"),
                               .implementation = espalier_implementation(),
                               .sequence_length = 32768};
  const LayoutSpace space{.num_devices = 16, .global_batch = 64};
  const LayoutPrice best = search_layouts(problem, space).ranking.front();
  ASSERT_EQ(bottleneck(best).name(), "tensor_comm") << best.layout.text();
  const std::vector<Mitigation> options = mitigations(problem, space, best);
  const auto context = std::find_if(options.begin(), options.end(),
                                    [](const Mitigation& option) { return option.price.layout.context > 1; });
  ASSERT_NE(context, options.end());
  EXPECT_TRUE(context->relieves_bottleneck() && context->helps()) << context->change;
  EXPECT_THAT(context->lacks, HasSubstr("train has no context parallelism yet"));
}

// What does not fit alone fits together with more recomputation, and what recomputation was for may become needless.
TEST(Mitigation, micro_batches_change_together_with_recomputation) {
  PlanProblem problem = {.model = model_preset("gpt-22b"),
                         .cluster = cluster_preset("a100-40:4"),
                         .implementation = espalier_implementation(),
                         .sequence_length = 2048};
  problem.cluster.reserved_bytes = Index{3} << 30;  // one of the changes fits only just
  const LayoutSpace space{.num_devices = 32, .global_batch = 128, .only_runnable = true};
  Layout layout;
  layout.global_batch = space.global_batch;
  const auto option = [&](const std::string& start, const std::string& change) {
    const LayoutPrice price =
        price_layout(problem, parse_layout("tensor=8,data=4,sequence_parallel=1,zero_stage=1," + start, layout));
    for (const Mitigation& each : mitigations(problem, space, price))
      if (each.change == change)
        return each;
    ADD_FAILURE() << change;
    return Mitigation{};
  };
  const Mitigation alone = option("micro_batch=4", "micro-batches of 8 instead of 4 (batch.micro_batch_size)");
  EXPECT_THAT(alone.obstacle, HasSubstr("does not fit"));
  const Mitigation both = option("micro_batch=4",
                                 "micro-batches of 8 instead of 4 with selective recomputation "
                                 "(batch.micro_batch_size, parallel.recompute)");
  EXPECT_TRUE(both.helps() && both.is_ready()) << both.obstacle << both.lacks;
  EXPECT_GT(both.gain, 0.03);
  const Mitigation smaller = option("micro_batch=8,recompute=full",
                                    "micro-batches of 4 instead of 8 with no recomputation "
                                    "(batch.micro_batch_size, parallel.recompute)");
  EXPECT_TRUE(smaller.helps() && smaller.is_ready()) << smaller.obstacle << smaller.lacks;
  EXPECT_GT(smaller.gain, 0.1);
}

// Twice the bandwidth is that of the links that the bottleneck's ranks are on.
TEST(Mitigation, a_better_machine_has_the_links_that_are_waited_for) {
  const PlanProblem problem = {.model = model_preset("gpt3-175b"),
                               .cluster = cluster_preset("a100-80:16"),
                               .implementation = espalier_implementation(),
                               .sequence_length = 2048};
  Layout layout;
  layout.global_batch = 256;
  const LayoutPrice inside = price_layout(problem, parse_layout("tensor=8,pipeline=16,schedule=zero_bubble", layout));
  ASSERT_EQ(bottleneck(inside).name(), "tensor_comm");
  EXPECT_EQ(better_machine(problem, inside)->change, "twice the bandwidth inside the node");
  EXPECT_GT(better_machine(problem, inside)->saved, 0);
  const LayoutPrice across = price_layout(problem, parse_layout("tensor=16,pipeline=8", layout));
  ASSERT_EQ(bottleneck(across).name(), "tensor_comm");
  EXPECT_EQ(better_machine(problem, across)->change, "twice the bandwidth between nodes");
  // Of tensor and context ranks those whose links matter more: here few activations inside nodes, keys between them.
  PlanProblem slow_network = problem;
  slow_network.cluster.network.bandwidth /= 100;
  slow_network.cluster.network.alone /= 100;
  const LayoutPrice both =
      price_layout(slow_network, parse_layout("tensor=2,context=8,pipeline=8,micro_batch=4", layout));
  ASSERT_EQ(bottleneck(both).name(), "tensor_comm");
  EXPECT_EQ(better_machine(slow_network, both)->change, "twice the bandwidth between nodes");
}

}  // namespace
