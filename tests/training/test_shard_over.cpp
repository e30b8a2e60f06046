// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "training/run_layout.hpp"
#include "training/shard_over.hpp"

namespace espalier {
namespace {

std::string refusal(const MeshLayout& mesh, Index ranks_per_node) {
  try {
    replicas_of_a_node(mesh, ranks_per_node);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(ShardOver, ReplicasOfANode) {
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 1, 16, 1), 4), 4);
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 1, 16, 1), 16), 16);
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 1, 16, 1), 64), 16) << "all on a part of a node";
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 2, 8, 1), 8), 4);
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 4, 4, 1), 4), 1);
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 2, 4, 2), 4), 2);
  // Stages side by side: rank = tp + 2 (pp + 2 dp).
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 2, 4, 2, pipeline_first_order), 8), 2);
  EXPECT_EQ(replicas_of_a_node(make_layout(16, 2, 4, 2, pipeline_first_order), 4), 1);
}

TEST(ShardOver, NodesWithUnlikeReplicasAreRefused) {
  for (const auto& [mesh, ranks_per_node] :
       {std::pair{make_layout(6, 1, 6, 1), 4}, {make_layout(12, 2, 3, 2), 4}, {make_layout(12, 3, 4, 1), 4}}) {
    const std::string text = refusal(mesh, ranks_per_node);
    EXPECT_NE(text.find("unlike numbers of replicas"), std::string::npos) << text;
    EXPECT_NE(text.find(mesh.text()), std::string::npos) << text;
  }
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
  EXPECT_THROW(layout(of_node, 0), Error) << "nobody says how many ranks a node has";
  std::vector<std::string> unsharded = of_node;
  unsharded[3] = "parallel.zero_stage=0";
  EXPECT_EQ(layout(unsharded, 0).shard_replicas, 0);
}

}  // namespace
}  // namespace espalier
