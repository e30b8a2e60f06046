// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// All ranks save together or not at all.
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "tests/io/support.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/tiny_run.hpp"
#include "tests/training/virtual_ranks.hpp"
#include "training/checkpoint/sharded_save.hpp"

namespace espalier::test {
namespace {

CheckpointInfo info_of(Index step) {
  CheckpointInfo info;
  info.step = step;
  return info;
}

std::vector<VirtualLayout> layouts_of_this_world() {
  const int n = world().size();
  std::vector<VirtualLayout> layouts = {{n, 1, 1, false}, {1, n, 1, false}, {1, n, 1, true}, {1, 1, n, false}};
  if (n == 4)
    layouts.insert(layouts.end(), {{2, 2, 1, true}, {2, 1, 2, false}, {1, 2, 2, true}});
  return layouts;
}

Path save(const Path& directory, Index step, const VirtualRank<float>& rank) {
  return save_sharded(directory, info_of(step), rank.blocks(), rank.tensors(), world());
}

// All ranks must throw, with a text that contains `part`, and leave nothing behind.
template <class Action>
void expect_failure_everywhere(const Path& directory, ExitCode code, const std::string& part, const Action& action) {
  expect_error(code, {part}, action);
  barrier(world());
  EXPECT_TRUE(std::filesystem::is_empty(directory)) << "a failed save left something in " << directory;
  barrier(world());
}

TEST(ShardedSave, AnyLayoutReadsIt) {
  const SharedFolder folder("sharded_save");
  for (const VirtualLayout& layout : layouts_of_this_world()) {
    const VirtualRank<float> rank(layout, world().rank());
    rank.fill(false);
    const Path path = save(folder / layout.text(), 7, rank);
    const CheckpointReader checkpoint(path);  // complete on every rank as soon as it returns
    for (const VirtualLayout& other : layouts_of_this_world()) {
      const VirtualRank<float> reader(other, world().rank());
      reader.fill(true);
      reader.read(checkpoint);
      EXPECT_EQ(reader.num_wrong(), 0) << other.text() << " from " << layout.text();
    }
    const bool writes = !rank.blocks().empty();
    const Index writers = all_reduce(world(), writes ? Index{1} : Index{0});
    EXPECT_EQ(static_cast<Index>(checkpoint.files().size()), writers) << "one file a writer";
    barrier(world());
  }
}

TEST(ShardedSave, OneWriterThatCannotFailsAllAndTheNextSaveWorks) {
  const SharedFolder folder("sharded_fault");
  const VirtualRank<float> rank({world().size(), 1, 1, false}, world().rank());
  rank.fill(false);
  std::filesystem::create_directories(folder / "c");
  barrier(world());
  for (int failing = 0; failing < world().size(); ++failing)
    expect_failure_everywhere(folder / "c", ExitCode::write,
                              world().size() > 1 ? "rank " + std::to_string(failing) : "", [&] {
                                std::optional<FileSizeLimit> full_disk;
                                if (world().rank() == failing)
                                  full_disk.emplace(1000);
                                save(folder / "c", 1, rank);
                              });
  EXPECT_EQ(CheckpointReader(save(folder / "c", 1, rank)).info().step, 1);
}

TEST(ShardedSave, ATensorWithoutAWriterIsRefusedBeforeTheFirstByte) {
  const SharedFolder folder("sharded_coverage");
  std::filesystem::create_directories(folder / "c");
  barrier(world());
  const VirtualRank<float> rank({1, world().size(), 1, false}, world().rank());
  expect_failure_everywhere(folder / "c", ExitCode::defect, "no rank writes the tensor exp_avg/",
                            [&] { save_sharded(folder / "c", info_of(1), {}, rank.tensors(), world()); });
}

TEST(ShardedSavePeers, ATensorThatTwoRanksWriteOrNoneInWholeIsRefused) {
  ASSERT_GT(world().size(), 1) << "nobody to write it twice";
  const SharedFolder folder("sharded_twice");
  std::filesystem::create_directories(folder / "c");
  barrier(world());
  const VirtualRank<float> rank({1, world().size(), 1, false}, world().rank());
  const VirtualRank<float> same({1, 1, 1, false}, 0);  // on every rank
  expect_failure_everywhere(folder / "c", ExitCode::defect, "stored twice", [&] { save(folder / "c", 1, same); });
  expect_failure_everywhere(folder / "c", ExitCode::defect, "not stored", [&] {
    std::vector<TensorBlock> blocks = rank.blocks();
    if (!blocks.empty())
      blocks.front().count.back() -= 1;
    save_sharded(folder / "c", info_of(1), blocks, rank.tensors(), world());
  });
}

TEST(ShardedSave, WhatAKilledSaveLeftIsNoCheckpointAndGoesWithTheNext) {
  const SharedFolder folder("sharded_killed");
  const VirtualRank<float> rank({world().size(), 1, 1, false}, world().rank());
  rank.fill(false);
  if (world().rank() == 0) {  // as if the others had been killed before their files
    write_shard(begin_checkpoint(folder / "c", 1), own_file(0), rank.blocks());
    EXPECT_FALSE(find_checkpoints(folder / "c").at(0).complete);
  }
  barrier(world());
  EXPECT_GT(CheckpointReader(save(folder / "c", 2, rank)).verify(), 0);
  EXPECT_EQ(find_checkpoints(folder / "c").size(), 1U);
  barrier(world());
}

// All replicas hold the same moments here; each writes a part, cut anywhere in the flat arrays.
TEST(ShardedSave, ATrainersStateInPartsIsTheStateOfOneRank) {
  const SharedFolder folder("sharded_trainer");
  const int n = world().size();
  const RunConfig config = tiny_config(folder, n);
  TrainerOn<Fp32> on(config, world());
  TypedTrainer<Fp32>& trainer = on.trainer;
  trainer.step();
  trainer.step();
  const Index flat = trainer.store().flat_size();
  const Index cut = flat * world().rank() / n;
  const Index end = flat * (world().rank() + 1) / n;
  const Index middle = (cut + end) / 2;  // adjacent runs are as good as one
  const StateOwnership parts{{{cut, end}}, {{cut, middle}, {middle, end}}};
  const Path path = save_training_state(folder / "c", trainer, config, on.mesh, "run", parts);
  EXPECT_EQ(static_cast<int>(CheckpointReader(path).files().size()), n);

  const Communicator alone = world().split(world().rank(), 0, "alone");
  TrainerOn<Fp32> on_one(config, alone);
  TypedTrainer<Fp32>& loaded = on_one.trainer;
  load_training_state(CheckpointReader(path), loaded, model_tensors(alone, loaded.parameters()));
  EXPECT_EQ(loaded.steps_done(), 2);
  EXPECT_EQ(loaded.data_position(), trainer.data_position());
  const auto expect_equal = [&](const Tensor<float, 1>& got_here, const Tensor<float, 1>& wanted_here,
                                const char* what) {
    const auto got = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), got_here);
    const auto wanted = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), wanted_here);
    for (const Parameter& parameter : trainer.parameters())
      EXPECT_EQ(std::memcmp(got.data() + parameter.offset, wanted.data() + parameter.offset,
                            static_cast<std::size_t>(parameter.size) * sizeof(float)),
                0)
          << what << " of " << parameter.spec.name;
  };
  expect_equal(loaded.store().flat_weights(), trainer.store().flat_weights(), "weights");
  expect_equal(loaded.optimizer().exp_avg(), trainer.optimizer().exp_avg(), "exp_avg");
  expect_equal(loaded.optimizer().exp_avg_sq(), trainer.optimizer().exp_avg_sq(), "exp_avg_sq");
  barrier(world());
}

TEST(ShardedSave, ADirectoryThatCannotBeMadeFailsAll) {
  const VirtualRank<float> rank({1, world().size(), 1, false}, world().rank());
  expect_error(ExitCode::write, {"/proc/no"}, [&] { save("/proc/no", 1, rank); });
  barrier(world());
}

TEST(ShardedSave, StagesKnowTheNamesOfTheWholeModel) {
  const SharedFolder folder("sharded_stages");
  const VirtualRank<float> whole({1, 1, 1, false}, 0);
  const VirtualRank<float> stage({1, 1, world().size(), false}, world().rank());
  const std::vector<std::string> names = model_tensors(world(), stage.store().parameters());
  EXPECT_EQ(names, model_tensors(world(), whole.store().parameters()));
  EXPECT_EQ(names.size(), 2U + 4 * 8 + 1);

  stage.fill(false);
  const Path path = save(folder / "c", 1, stage);
  stage.fill(true);
  load_weights(CheckpointReader(path), stage.store(), names);
  EXPECT_NE(on_host(stage.arrays().back().values<float>())[0], -1);
  // A name that the checkpoint lacks, of whichever stage, and one that the model lacks.
  std::vector<std::string> more = names;
  more.push_back("h.4.norm1.weight");
  expect_error(ExitCode::checkpoint, {"another model", "h.4.norm1.weight"},
               [&] { load_weights(CheckpointReader(path), stage.store(), more); });
  std::vector<std::string> fewer(names.begin(), names.end() - 1);
  expect_error(ExitCode::checkpoint, {"another model", names.back()},
               [&] { load_weights(CheckpointReader(path), stage.store(), fewer); });
  barrier(world());
}

}  // namespace
}  // namespace espalier::test
