// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.hpp"
#include "tests/support/world.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/run_layout.hpp"
#include "training/config/shard_over.hpp"

namespace espalier {
namespace {

// Ranks 0 to 3 on nodes that are told by number.
std::string refusal_of_nodes(const std::array<int, 4>& node_of_rank) {
  const Communicator& world = test::world();
  const int node = node_of_rank[static_cast<std::size_t>(world.rank())];
  const Communicator host = world.split(node, world.rank(), "host");
  try {
    ranks_per_node(world, host);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.report().got;
  }
  return "";
}

TEST(ShardOverNodes, HoldTheirRanksAlike) {
  ASSERT_EQ(test::world().size(), 4);
  const Communicator pair = test::world().split(test::world().rank() / 2, test::world().rank(), "host");
  EXPECT_EQ(ranks_per_node(test::world(), pair), 2);
  EXPECT_EQ(ranks_per_node(test::world(), test::world()), 4);
  EXPECT_EQ(refusal_of_nodes({0, 0, 1, 1}), "");
  EXPECT_EQ(refusal_of_nodes({0, 0, 0, 1}), "1 rank on the node of rank 3, 3 on another");
  EXPECT_EQ(refusal_of_nodes({0, 1, 0, 1}), "rank 3 shares its node with ranks that are not its neighbours");
  EXPECT_EQ(refusal_of_nodes({0, 1, 1, 0}), "rank 3 shares its node with ranks that are not its neighbours");
}

TEST(ShardOver, ALayoutNamesItsShards) {
  const auto layout = [](const std::vector<std::string>& settings, Index ranks_per_node) {
    RunConfig config = parse_run_config("", "config", settings, 8);
    config.ranks_per_node = ranks_per_node;
    return make_run_layout(config, 8);
  };
  const std::vector<std::string> of_node = {"model.preset=gpt2-124m", "data.train=[\"t\"]", "run.steps=1",
                                            "parallel.zero_stage=3", "parallel.shard_over=node"};
  EXPECT_EQ(layout(of_node, 4).shard_replicas, 4);
  EXPECT_EQ(layout(of_node, 4).short_text(), "tensor 1 x data 8 x pipeline 1, ZeRO-3 over 4 replicas of a node");
  EXPECT_EQ(layout(of_node, 8).shard_replicas, 0) << "one node: all replicas share one copy";
  EXPECT_EQ(layout(of_node, 1).zero_stage, 0) << "a replica alone on its node shares nothing";
  RunConfig alone = parse_run_config("", "config", of_node, 8);
  alone.ranks_per_node = 1;
  EXPECT_THAT(config_warnings(alone, 8),
              testing::Contains("parallel.zero_stage does nothing: with shard_over = \"node\", "
                                "a node has one replica"));
  alone.ranks_per_node = 8;
  EXPECT_THAT(config_warnings(alone, 8),
              testing::Contains("parallel.shard_over = \"node\" does nothing: all replicas are on one node"));
  alone.ranks_per_node = 4;
  EXPECT_THAT(config_warnings(alone, 8), testing::Not(testing::Contains(testing::HasSubstr("does nothing"))));
  EXPECT_THROW(layout(of_node, 0), Error) << "the number of ranks per node is unknown";
  EXPECT_THROW(layout(of_node, 3), Error) << "nodes have unlike numbers of replicas";
  std::vector<std::string> unsharded = of_node;
  unsharded[3] = "parallel.zero_stage=0";
  EXPECT_EQ(layout(unsharded, 0).shard_replicas, 0);
}

}  // namespace
}  // namespace espalier
