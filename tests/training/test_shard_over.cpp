// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "training/run_layout.hpp"
#include "training/shard_over.hpp"

namespace espalier {
namespace {

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
  EXPECT_THROW(layout(of_node, 0), Error) << "nobody says how many ranks a node has";
  EXPECT_THROW(layout(of_node, 3), Error) << "nodes have unlike numbers of replicas";
  std::vector<std::string> unsharded = of_node;
  unsharded[3] = "parallel.zero_stage=0";
  EXPECT_EQ(layout(unsharded, 0).shard_replicas, 0);
}

}  // namespace
}  // namespace espalier
