// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Every layout writes what every other reads, bit for bit; the ranks of a layout take turns in one process.
#include <gtest/gtest.h>

#include <set>

#include "tests/io/support.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/virtual_ranks.hpp"

namespace espalier::test {
namespace {

std::vector<VirtualLayout> layouts() {
  std::vector<VirtualLayout> all;
  for (const int tp : {1, 2, 3, 4})
    all.push_back({tp, 1, 1, false});
  for (const int dp : {2, 3, 4})
    all.push_back({1, dp, 1, true});
  all.push_back({2, 4, 1, true});
  all.push_back({1, 2, 1, false});
  for (const int pp : {2, 4})
    all.push_back({1, 1, pp, false});
  all.push_back({2, 3, 2, true});
  all.push_back({3, 2, 4, true});
  return all;
}

template <class T>
Path write(const Path& directory, const VirtualLayout& layout) {
  const Path partial = begin_checkpoint(directory, 1);
  std::vector<ShardRecord> shards;
  for (int r = 0; r < layout.size(); ++r) {
    const VirtualRank<T> rank(layout, r);
    rank.fill(false);
    if (const auto blocks = rank.blocks(); !blocks.empty())
      shards.push_back(write_shard(partial, own_file(r), blocks));
  }
  CheckpointInfo info;
  info.step = 1;
  return publish_checkpoint(directory, info, shards);
}

TEST(FlatBlocks, EveryLayoutReadsWhatEveryOtherWrote) {
  const TemporaryDirectory directory;
  for (const VirtualLayout& writer : layouts()) {
    const CheckpointReader checkpoint(write<float>(directory / writer.text(), writer));
    EXPECT_EQ(checkpoint.tensors().size(), 3U * (2 + 4 * 8 + 1));
    for (const VirtualLayout& reader : layouts())
      for (int r = 0; r < reader.size(); ++r) {
        const VirtualRank<float> rank(reader, r);
        rank.fill(true);
        EXPECT_GT(rank.num_wrong(), 0);
        rank.read(checkpoint);
        EXPECT_EQ(rank.num_wrong(), 0) << "rank " << r << " of " << reader.text() << " from " << writer.text();
      }
  }
}

TEST(FlatBlocks, DoublesToo) {
  const TemporaryDirectory directory;
  const CheckpointReader checkpoint(write<double>(directory / "c", {2, 2, 2, true}));
  const VirtualRank<double> rank({3, 1, 1, false}, 1);
  rank.read(checkpoint);
  EXPECT_EQ(rank.num_wrong(), 0);
}

TEST(FlatBlocks, WeightsAndTheirMastersAreFilledTogether) {
  const TemporaryDirectory directory;
  const CheckpointReader checkpoint(write<float>(directory / "c", {2, 2, 1, true}));
  const VirtualRank<float> rank({3, 1, 1, false}, 1);
  const FlatArray& master_weights = rank.arrays().back();
  const auto weights = allocate<bfloat16>(Category::weights, "weights", rank.store().flat_size());
  rank.fill(false);
  const Values wanted = on_host(master_weights.values<float>());
  rank.fill(true);
  read_flat_arrays(ExecSpace(), checkpoint, rank.store().parameters(),
                   {{"weights", weights, master_weights.held}, master_weights});
  EXPECT_EQ(on_host(master_weights.values<float>()), wanted);
  EXPECT_EQ(on_host(weights), rounded<bfloat16>(wanted));
}

TEST(FlatBlocks, RanksWithoutAnythingOfTheirOwnWriteNothing) {
  const VirtualLayout replicas{1, 2, 1, false};
  EXPECT_FALSE(VirtualRank<float>(replicas, 0).blocks().empty());
  EXPECT_TRUE(VirtualRank<float>(replicas, 1).blocks().empty());
}

TEST(FlatBlocks, ACutThroughQkvIsSeveralBoxes) {
  const VirtualLayout layout{1, 4, 1, true};
  std::set<std::string> cut;  // tensors of which one rank writes several blocks
  for (int r = 0; r < layout.size(); ++r) {
    std::set<std::string> seen;
    for (const TensorBlock& block : VirtualRank<float>(layout, r).blocks())
      if (!seen.insert(block.name).second)
        cut.insert(block.name);
  }
  EXPECT_TRUE(cut.count("exp_avg/h.0.attention.qkv.weight") > 0) << "the test should meet a cut through Q, K and V";
}

TEST(FlatBlocks, WhatIsCountedMustBeHeld) {
  const VirtualRank<float> rank({1, 2, 1, true}, 0);
  const FlatArray& moments = rank.arrays()[0];
  EXPECT_THROW(
      blocks_to_write(rank.store().parameters(), moments, moments.bytes.data(), {{0, rank.store().flat_size()}}),
      std::logic_error);
}

}  // namespace
}  // namespace espalier::test
