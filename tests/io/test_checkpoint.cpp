// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "core/tensor.hpp"
#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;

TEST(Checkpoint, goes_round) {
  const TemporaryDirectory directory;
  const Model model(7);
  const Path path = save(directory / "checkpoints", 100, model);
  EXPECT_EQ(path, directory / "checkpoints/step-00000100");
  EXPECT_EQ(names_in(directory / "checkpoints"), (std::vector<std::string>{"step-00000100"}));
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"index.h5", "manifest.json", "rank-00000.h5"}));
  EXPECT_TRUE(loads(path, model));
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.info().step, 100);
  EXPECT_EQ(reader.info().run, "test");
  EXPECT_EQ(reader.state(), info_of(100).state);
  EXPECT_EQ(reader.state()["loss"].get<double>(), 1.0 / 3);
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensors()[1].name, "weights/h.0.bias");
  EXPECT_TRUE(reader.contains("loss_scale"));
  EXPECT_FALSE(reader.contains("loss"));
  EXPECT_GT(reader.verify(), 24 * 4);
}

TEST(Checkpoint, the_same_content_gives_the_same_bytes) {
  const TemporaryDirectory directory;
  const Path one = save(directory / "a", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5's times are whole seconds
  const Path two = save(directory / "b", 1);
  for (const char* const name : {"manifest.json", "rank-00000.h5"})
    EXPECT_TRUE(read_bytes(one / name) == read_bytes(two / name)) << name;
}

TEST(Checkpoint, any_box_is_assembled_from_any_cut) {
  const TemporaryDirectory directory;
  const std::vector<Index> shape{5, 4, 6};
  std::vector<float> whole(120);
  std::iota(whole.begin(), whole.end(), 1.0f);
  const Box everything{{0, 0, 0}, shape};
  // Three writers: the first half of dimension 0 in two parts along dimension 2, the second along
  // dimension 1.
  const std::vector<std::vector<Box>> cuts{
      {{{0, 0, 0}, {2, 4, 2}}, {{2, 0, 0}, {3, 1, 6}}}, {{{0, 0, 2}, {2, 4, 4}}}, {{{2, 1, 0}, {3, 3, 6}}}};
  const CheckpointInfo info = info_of(3);
  const Path partial = begin_checkpoint(directory / "c", 3);
  std::vector<ShardRecord> shards;
  for (std::size_t writer = 0; writer < cuts.size(); ++writer) {
    std::vector<std::vector<float>> data;
    std::vector<TensorBlock> blocks;
    for (const Box& box : cuts[writer]) {
      data.emplace_back(static_cast<std::size_t>(num_elements(box.count)));
      copy_overlap(everything, ScalarType::fp32, whole.data(), box, ScalarType::fp32, data.back().data());
    }
    for (std::size_t i = 0; i < data.size(); ++i)
      blocks.push_back({"w", ScalarType::fp32, shape, cuts[writer][i].start, cuts[writer][i].count, data[i].data()});
    const auto text =
        to_json(write_shard(partial, own_file(static_cast<int>(writer)), blocks)).dump();  // as it travels
    shards.push_back(shard_record_from_json(nlohmann::json::parse(text)));
  }
  const CheckpointReader reader(publish_checkpoint(directory / "c", info, shards));
  std::vector<float> found(120);
  reader.read("w", shape, ScalarType::fp32, found.data());
  EXPECT_EQ(found, whole);
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    Box box;
    for (const Index extent : shape) {
      box.start.push_back(std::uniform_int_distribution<Index>(0, extent - 1)(random));
      box.count.push_back(std::uniform_int_distribution<Index>(1, extent - box.start.back())(random));
    }
    std::vector<double> part(static_cast<std::size_t>(num_elements(box.count)), -1);
    reader.read("w", box.start, box.count, ScalarType::fp64, part.data());
    std::size_t next = 0;
    for (Index i = 0; i < box.count[0]; ++i)
      for (Index j = 0; j < box.count[1]; ++j)
        for (Index k = 0; k < box.count[2]; ++k)
          ASSERT_EQ(part[next++],
                    static_cast<double>((box.start[0] + i) * 24 + (box.start[1] + j) * 6 + box.start[2] + k + 1));
  }
  EXPECT_GT(reader.verify(), 0);
}

TEST(Checkpoint, converts_between_types) {
  const TemporaryDirectory directory;
  const std::vector<double> wide{1.0, -2.5, 1.0 / 3, 1e-3};
  const std::vector<bfloat16> narrow{bfloat16(1.0f), bfloat16(0.1f), bfloat16(-3.0f)};
  const std::vector<TensorBlock> blocks{whole_tensor("wide", ScalarType::fp64, {4}, wide.data()),
                                        whole_tensor("narrow", ScalarType::bf16, {3}, narrow.data())};
  const CheckpointReader reader(save_checkpoint(directory / "c", info_of(1), blocks));
  std::vector<float> single(4);
  reader.read("wide", {4}, ScalarType::fp32, single.data());
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(single[i], static_cast<float>(wide[i]));
  std::vector<bfloat16> half(4);
  reader.read("wide", {4}, ScalarType::bf16, half.data());
  EXPECT_EQ(half[2].bits, bfloat16(1.0f / 3).bits);
  std::vector<bfloat16> same(3);
  reader.read("narrow", {3}, ScalarType::bf16, same.data());
  EXPECT_EQ(same[1].bits, narrow[1].bits);
  std::vector<double> back(3);
  reader.read("narrow", {3}, ScalarType::fp64, back.data());
  EXPECT_EQ(back[1], static_cast<double>(static_cast<float>(narrow[1])));
}

TEST(Checkpoint, wrong_requests_are_named) {
  const TemporaryDirectory directory;
  const CheckpointReader reader(save(directory / "c", 1));
  std::vector<float> buffer(100);
  expect_error(ExitCode::checkpoint, {"lacks a tensor", "weights/h.1.weight"}, [&] {
    reader.read("weights/h.1.weight", {4, 6}, ScalarType::fp32, buffer.data());
  });
  expect_error(ExitCode::checkpoint, {"another shape", "h.0.weight of shape (4, 6)", "(4, 7)"}, [&] {
    reader.read("weights/h.0.weight", {4, 7}, ScalarType::fp32, buffer.data());
  });
  expect_error(ExitCode::checkpoint, {"another shape"}, [&] {
    reader.read("weights/h.0.weight", {0, 3}, {4, 4}, ScalarType::fp32, buffer.data());
  });
}

TEST(Checkpoint, every_element_has_exactly_one_writer) {
  const TemporaryDirectory directory;
  const std::vector<float> data(24);
  const auto publish = [&](const std::vector<TensorBlock>& blocks) {
    save_checkpoint(directory / "c", info_of(1), blocks);
  };
  expect_error(ExitCode::checkpoint, {"stored twice", "w"}, [&] {
    publish({{"w", ScalarType::fp32, {4, 6}, {0, 0}, {3, 6}, data.data()},
             {"w", ScalarType::fp32, {4, 6}, {2, 0}, {2, 6}, data.data()}});
  });
  expect_error(ExitCode::checkpoint, {"not stored", "12 of 24 in w"}, [&] {
    publish({{"w", ScalarType::fp32, {4, 6}, {0, 0}, {2, 6}, data.data()}});
  });
  expect_error(ExitCode::checkpoint, {"disagree"}, [&] {
    publish({{"w", ScalarType::fp32, {4, 6}, {0, 0}, {2, 6}, data.data()},
             {"w", ScalarType::fp64, {4, 6}, {2, 0}, {1, 6}, data.data()}});
  });
  EXPECT_TRUE(names_in(directory / "c").empty());  // and nothing was left behind
}

TEST(Checkpoint, the_newest_comes_first_and_old_ones_go) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(find_checkpoints(directory / "none").empty());
  for (const Index step : {100, 20, 300, 1234567890})
    save(directory / "c", step);
  std::filesystem::create_directory(directory / "c/other");
  std::filesystem::create_directory(directory / "c/step-00000400");
  std::filesystem::create_directory(directory / "c/step-00000500.partial");
  std::filesystem::resize_file(directory / "c/step-00000300/rank-00000.h5", 100);
  auto found = find_checkpoints(directory / "c");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0].step, 1234567890);
  EXPECT_TRUE(found[0].complete);
  EXPECT_EQ(found[1].reason, "its save was not finished");
  EXPECT_NE(found[2].reason.find("missing"), std::string::npos);
  EXPECT_NE(found[3].reason.find("rank-00000.h5, got 100 bytes"), std::string::npos) << found[3].reason;
  EXPECT_EQ(found[4].step, 100);
  EXPECT_TRUE(found[4].complete);
  prune_checkpoints(directory / "c", {.last = 2});
  found = find_checkpoints(directory / "c");
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[4].step, 100);  // counts complete ones only
  prune_checkpoints(directory / "c", {.last = 1});
  save(directory / "c", 600);  // removes the unfinished save
  EXPECT_EQ(names_in(directory / "c"),
            (std::vector<std::string>{"other", "step-00000300", "step-00000400", "step-00000600", "step-1234567890"}));
}

TEST(Checkpoint, a_step_is_replaced_in_one_move) {
  const TemporaryDirectory directory;
  save(directory / "c", 5, Model(1));
  save(directory / "c", 5, Model(2));
  EXPECT_TRUE(loads(directory / "c/step-00000005", Model(2)));
  EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000005"}));
}

TEST(Checkpoint, pruning_counts_up_to_the_step_just_saved) {
  const TemporaryDirectory directory;
  for (const Index step : {10, 20, 30, 90, 100})
    save(directory / "c", step);
  prune_checkpoints(directory / "c", {.last = 2}, 30);  // 90 and 100 are of another timeline
  EXPECT_EQ(names_in(directory / "c"),
            (std::vector<std::string>{"step-00000020", "step-00000030", "step-00000090", "step-00000100"}));
}

TEST(Checkpoint, multiples_are_kept_for_ever_beside_the_newest) {
  const TemporaryDirectory directory;
  for (const Index step : {10, 15, 20, 25, 30, 35, 40})
    save(directory / "c", step);
  std::filesystem::remove(directory / "c/step-00000035/manifest.json");  // counts for nothing
  prune_checkpoints(directory / "c", {.last = 2, .every = 20});
  EXPECT_EQ(names_in(directory / "c"),
            (std::vector<std::string>{"step-00000020", "step-00000030", "step-00000035", "step-00000040"}));
}

TEST(Checkpoint, a_newer_timeline_is_set_aside_and_never_found_again) {
  const TemporaryDirectory directory;
  for (const Index step : {1, 2, 3})
    save(directory / "c", step);
  std::filesystem::create_directory(directory / "c/step-00000004");  // a torn one is no less in the way
  EXPECT_EQ(set_aside_checkpoints_after(directory / "c", 2).size(), 2u);
  EXPECT_EQ(find_checkpoints(directory / "c").at(0).step, 2);
  save(directory / "c", 3);
  prune_checkpoints(directory / "c", {.last = 1});
  EXPECT_EQ(set_aside_checkpoints_after(directory / "c", 2).at(0).filename(), "step-00000003.abandoned-2");
  EXPECT_TRUE(set_aside_checkpoints_after(directory / "c", 2).empty());
  EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000003.abandoned", "step-00000003.abandoned-2",
                                                                 "step-00000004.abandoned"}));
  EXPECT_TRUE(loads(directory / "c/step-00000003.abandoned", Model()));
}

// Where the file system cannot exchange two names, a step is replaced by two renames; a kill may come between them.
TEST(Checkpoint, a_replacement_by_two_renames_loses_nothing_either) {
  const TemporaryDirectory directory;
  save(directory / "c", 5, Model(1));
  std::filesystem::rename(save(directory / "d", 5, Model(2)), directory / "c/step-00000005.partial");
  impl::replace_by_two_renames(directory / "c/step-00000005", "");
  EXPECT_TRUE(loads(directory / "c/step-00000005", Model(2)));
  EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000005"}));

  std::filesystem::rename(directory / "c/step-00000005", directory / "c/step-00000005.replaced.partial");  // the kill
  std::filesystem::rename(save(directory / "d", 5, Model(3)), directory / "c/step-00000005.partial");
  const auto found = find_checkpoints(directory / "c");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].complete + found[1].complete, 1) << "the old one counts, the unpublished one does not";
  EXPECT_TRUE(loads(found[0].complete ? found[0].path : found[1].path, Model(2)));
  save(directory / "c", 6);
  EXPECT_TRUE(loads(directory / "c/step-00000005", Model(2)));
  EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000005", "step-00000006"}));
}

// Every byte is as it was written, and yet it is no checkpoint to use.
TEST(Checkpoint, numbers_that_are_not_finite_are_found_by_verify) {
  const TemporaryDirectory directory;
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    Model in_fp32;
    in_fp32.weight[17] = static_cast<float>(bad);
    const Path first = save(directory / "c", 1, in_fp32);
    expect_error(ExitCode::checkpoint, {"not finite", "weights/h.0.weight"}, [&] { CheckpointReader(first).verify(); });
    Model in_fp64;
    in_fp64.bias[2] = bad;
    const Path second = save(directory / "c", 2, in_fp64);
    expect_error(ExitCode::checkpoint, {"not finite", "weights/h.0.bias"}, [&] { CheckpointReader(second).verify(); });
    const std::uint16_t in_16_bits[3] = {0, std::isnan(bad) ? std::uint16_t{0x7fff} : std::uint16_t{0xfc00}, 0};
    const Path third =
        save_checkpoint(directory / "c", info_of(3), std::vector{whole_tensor("w", ScalarType::fp16, {3}, in_16_bits)});
    expect_error(ExitCode::checkpoint, {"not finite", "w"}, [&] { CheckpointReader(third).verify(); });
  }
}
