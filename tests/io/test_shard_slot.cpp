// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Several writers of one file: who writes when, and what a reader sees.
#include <map>
#include <random>

#include "tests/io/checkpoint_support.hpp"

namespace espalier::test {
namespace {

TEST(ShardSlot, a_file_for_each_writer_is_the_default) {
  const std::vector<Index> blocks{4, 0, 7};
  for (const int writer : {0, 2}) {
    const ShardSlot slot = shard_slot(blocks, writer, 1);
    EXPECT_EQ(slot.file, own_file(writer).file);
    EXPECT_EQ(slot.first_block, 0);
    EXPECT_EQ(slot.turn, 0);
    EXPECT_TRUE(slot.completes);
  }
  EXPECT_EQ(num_turns(blocks, 1), 1);
}

TEST(ShardSlot, neighbours_take_turns_and_idle_ranks_none) {
  const std::vector<Index> blocks{0, 3, 0, 5, 2, 0, 0, 0, 0, 1};
  const ShardSlot second = shard_slot(blocks, 3, 4);
  EXPECT_EQ(second.file, "rank-00000.h5");
  EXPECT_EQ(second.first_block, 3);
  EXPECT_EQ(second.turn, 1);
  EXPECT_TRUE(second.completes);
  EXPECT_EQ(shard_slot(blocks, 1, 4).turn, 0);
  EXPECT_FALSE(shard_slot(blocks, 1, 4).completes);
  EXPECT_EQ(shard_slot(blocks, 4, 4).file, "rank-00004.h5");
  EXPECT_TRUE(shard_slot(blocks, 4, 4).completes);
  EXPECT_EQ(shard_slot(blocks, 9, 4).file, "rank-00008.h5") << "the last group is shorter";
  EXPECT_EQ(num_turns(blocks, 4), 2);
  EXPECT_EQ(num_turns(blocks, 100), 4);
  EXPECT_EQ(num_turns(std::vector<Index>(5, 0), 2), 0);
}

// In each file the turns are 0, 1, 2 ..., the blocks follow one another, and the last turn and no other completes it.
TEST(ShardSlot, turns_and_blocks_leave_no_gap_in_any_world) {
  std::mt19937 random(1);
  for (const int world : {1, 7, 64, 1000, 10000})
    for (const Index ranks_per_file : {1, 2, 3, 8, 64}) {
      std::vector<Index> blocks(static_cast<std::size_t>(world));
      for (Index& count : blocks)
        count = std::uniform_int_distribution<Index>(0, 3)(random);
      struct File {
        Index blocks = 0;
        int turns = 0;
        bool complete = false;
      };
      std::map<std::string, File> files;
      int max_turns = 0;
      for (int writer = 0; writer < world; ++writer) {
        if (blocks[static_cast<std::size_t>(writer)] == 0)
          continue;
        const ShardSlot slot = shard_slot(blocks, writer, ranks_per_file);
        File& file = files[slot.file];
        EXPECT_FALSE(file.complete);
        EXPECT_EQ(slot.turn, file.turns++);
        EXPECT_EQ(slot.first_block, file.blocks);
        file.blocks += blocks[static_cast<std::size_t>(writer)];
        file.complete = slot.completes;
        max_turns = std::max(max_turns, file.turns);
      }
      for (const auto& [name, file] : files)
        EXPECT_TRUE(file.complete) << name;
      EXPECT_EQ(num_turns(blocks, ranks_per_file), max_turns);
    }
}

// Three writers, one file: each with a tensor of its own and a third of a common one.
TEST(ShardSlot, a_shared_file_is_read_and_guarded_like_any_other) {
  const TemporaryDirectory directory;
  const Path partial = begin_checkpoint(directory / "c", 1);
  std::vector<std::vector<float>> own(3), part(3);
  std::vector<std::vector<TensorBlock>> blocks(3);
  for (std::size_t w = 0; w < 3; ++w) {
    own[w].assign(20000, static_cast<float>(w));  // beyond the alignment of large datasets
    part[w].assign(6, static_cast<float>(10 * w));
    blocks[w] = {whole_tensor("own/" + std::to_string(w), ScalarType::fp32, {20000}, own[w].data()),
                 {"common", ScalarType::fp32, {9, 2}, {static_cast<Index>(3 * w), 0}, {3, 2}, part[w].data()}};
  }
  const std::vector<Index> counts{2, 2, 2};
  std::vector<ShardRecord> records;
  for (int w = 0; w < 3; ++w) {
    const auto& ours = blocks[static_cast<std::size_t>(w)];
    const auto text = to_json(write_shard(partial, shard_slot(counts, w, 4), ours)).dump();
    records.push_back(shard_record_from_json(nlohmann::json::parse(text)));
  }
  const Path path = publish_checkpoint(directory / "c", info_of(1), records);
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"manifest.json", "rank-00000.h5"}));
  const CheckpointReader reader(path);
  EXPECT_GT(reader.verify(), 3 * 80000);
  std::vector<float> common(18);
  reader.read("common", {9, 2}, ScalarType::fp32, common.data());
  for (std::size_t i = 0; i < 18; ++i)
    EXPECT_EQ(common[i], static_cast<float>(10 * (i / 6)));

  const std::string good = read_bytes(path / "rank-00000.h5");
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::string bad = good;
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, good.size() - 1)(random);
    bad[at] = static_cast<char>(bad[at] ^ (1 << (trial % 8)));
    write_bytes(path / "rank-00000.h5", bad);
    expect_error(ExitCode::checkpoint, {"rank-00000.h5"}, [&] { CheckpointReader(path).verify(); });
  }
}

TEST(ShardSlot, a_planted_link_is_not_appended_to) {
  const TemporaryDirectory directory;
  const Path partial = begin_checkpoint(directory / "c", 1);
  const std::vector<Index> counts{3, 3};
  write_shard(partial, shard_slot(counts, 0, 2), Model().blocks());
  std::filesystem::rename(partial / "rank-00000.h5", directory / "victim.h5");
  const std::string before = read_bytes(directory / "victim.h5");
  std::filesystem::create_symlink(directory / "victim.h5", partial / "rank-00000.h5");
  expect_error(ExitCode::write, {"rank-00000.h5", "not a regular file"},
               [&] { write_shard(partial, shard_slot(counts, 1, 2), Model().blocks()); });
  EXPECT_EQ(read_bytes(directory / "victim.h5"), before);
}

TEST(ShardSlot, a_writer_that_is_asked_to_stop_leaves_no_file) {
  const TemporaryDirectory directory;
  const Path partial = begin_checkpoint(directory / "c", 1);
  std::stop_source source;
  source.request_stop();
  expect_error(ExitCode::write, {"a save was abandoned", "rank-00000.h5"},
               [&] { write_shard(partial, own_file(0), Model().blocks(), source.get_token()); });
  EXPECT_TRUE(std::filesystem::is_empty(partial));
}

}  // namespace
}  // namespace espalier::test
