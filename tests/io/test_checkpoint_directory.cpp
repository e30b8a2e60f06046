// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_directory.hpp"
#include "tests/io/checkpoint_support.hpp"

namespace espalier::test {
namespace {

TEST(CheckpointDirectory, an_unfinished_save_is_not_a_damaged_checkpoint) {
  const TemporaryDirectory directory;
  save(directory / "c", 1);
  std::filesystem::create_directory(directory / "c/step-00000002");
  std::filesystem::create_directory(directory / "c/step-00000003.partial");
  std::filesystem::rename(save(directory / "d", 4), directory / "c/step-00000004.replaced.partial");
  const auto found = find_checkpoints(directory / "c");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(found[0].complete && !found[0].unfinished) << "a kill between two renames loses nothing";
  EXPECT_TRUE(!found[1].complete && found[1].unfinished);
  EXPECT_TRUE(!found[2].complete && !found[2].unfinished);
  EXPECT_TRUE(found[3].complete && !found[3].unfinished);
}

TEST(CheckpointDirectory, one_that_cannot_be_listed_is_not_an_empty_one) {
  const TemporaryDirectory directory;
  write_bytes(directory / "c", "a file");
  expect_error(ExitCode::checkpoint, {"cannot list", "Not a directory"}, [&] { find_checkpoints(directory / "c"); });
}

TEST(CheckpointDirectory, a_run_stands_for_its_newest_complete_checkpoint) {
  const TemporaryDirectory directory;
  for (const Index step : {1, 2, 3})
    save(directory / "run/checkpoints", step);
  std::filesystem::remove(directory / "run/checkpoints/step-00000003/rank-00000.h5");
  const Path newest = directory / "run/checkpoints/step-00000002";
  EXPECT_EQ(resolve_checkpoint(directory / "run"), newest);
  EXPECT_EQ(resolve_checkpoint(newest), newest);

  const auto refused = [&] { resolve_checkpoint(directory / "run"); };
  for (const Index step : {1, 2})
    std::filesystem::remove(checkpoint_path(directory / "run/checkpoints", step) / "manifest.json");
  expect_error(ExitCode::checkpoint, {"step-00000003: a file of a checkpoint is missing", "step-00000001"}, refused);
  EXPECT_EQ(resolve_checkpoint(newest / ""), newest / "");
  expect_error(ExitCode::checkpoint, {"a file of a checkpoint is missing", "step-00000002/manifest.json"},
               [&] { CheckpointReader(resolve_checkpoint(newest)); });
  std::filesystem::remove_all(directory / "run/checkpoints");
  expect_error(ExitCode::checkpoint, {"no complete checkpoint here", "a run directory"}, refused);
  expect_error(ExitCode::checkpoint, {"nowhere"}, [&] { resolve_checkpoint(directory / "nowhere"); });
}

}  // namespace
}  // namespace espalier::test
