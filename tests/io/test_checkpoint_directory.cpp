// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/rank_file_name.hpp"
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
  expect_error(ExitCode::checkpoint,
               {"step-00000003: a file of a checkpoint is missing", "step-00000001", "restore the damaged files"},
               refused);
  EXPECT_EQ(resolve_checkpoint(newest / ""), newest / "");
  expect_error(ExitCode::checkpoint, {"a file of a checkpoint is missing", "step-00000002/manifest.json"},
               [&] { CheckpointReader(resolve_checkpoint(newest)); });
  std::filesystem::remove_all(directory / "run/checkpoints");
  expect_error(ExitCode::checkpoint, {"no complete checkpoint here", "a run directory"}, refused);
  expect_error(ExitCode::checkpoint, {"nowhere"}, [&] { resolve_checkpoint(directory / "nowhere"); });
}

TEST(CheckpointDirectory, names_of_ranks_and_steps_are_read_back_and_no_others) {
  EXPECT_EQ(shard_name(3), "rank-00003.h5");
  EXPECT_EQ(rank_in("rank-123456.position", ".position"), 123456);
  EXPECT_EQ(step_in(step_name(123456789)), 123456789);
  for (const char* const other : {"rank-3.h5", "rank-000003.h5", "rank--0003.h5", "rank-00003.h5x", "rank-00003",
                                  "rank-../03.h5", "rank-99999999999999999999.h5", "Rank-00003.h5", ""})
    EXPECT_FALSE(is_shard_name(other)) << other;
  for (const char* const other : {"step-1", "step-0000000x", "step--0000001", "step-00000001.h5", "step-", ""})
    EXPECT_FALSE(step_in(other)) << other;
}

// The place may be shared with the user and with other runs.
TEST(CheckpointDirectory, what_a_run_did_not_make_stays_as_it_is) {
  const TemporaryDirectory directory;
  const std::string own = new_owner();
  const std::string other = new_owner();
  const Path place = directory / "scratch";
  const Path link = directory / "checkpoints";
  std::filesystem::create_directory(place);
  std::filesystem::create_directory_symlink(place, link);
  const std::vector<std::string> foreign = {
      "mine.partial/rank-00000.h5",
      "step-old.partial/rank-00000.h5",
      "step-00000001.partial/rank-00000.h5",  // of an earlier version, or of the user
      "step-00000002.replaced.partial/manifest.json",
      "step-00000001." + other + ".partial/rank-00000.h5",
      "step-00000002." + other + ".replaced.partial/rank-00000.h5",
      "step-00000003." + own + ".partial.partial/rank-00000.h5",
      "mine." + own + ".partial/rank-00000.h5",
      "step-00000004." + own + ".partial/notes.txt"};
  for (const std::string& name : foreign) {
    std::filesystem::create_directories((place / name).parent_path());
    write_bytes(place / name, name);
  }
  std::filesystem::create_directory(place / ("step-00000005." + own + ".partial"));
  write_bytes(place / ("step-00000005." + own + ".partial") / "rank-00000.h5", "half of it");
  std::filesystem::create_directory(directory / "kept");
  write_bytes(directory / "kept/rank-00000.h5", "kept");
  std::filesystem::create_directory_symlink(directory / "kept", place / ("step-00000006." + own + ".partial"));
  const std::string third = new_owner();
  save_as(third, place, 1);
  save_as(third, place, 9);
  write_bytes(save_as(own, place, 8) / "notes.txt", "notes");
  for (const Index step : {9, 10, 11, 12}) {
    save_as(own, link, step);
    prune_checkpoints(link, {.last = 2}, step, own);
  }

  for (const std::string& name : foreign)
    EXPECT_EQ(read_bytes(place / name), name);
  EXPECT_EQ(read_bytes(directory / "kept/rank-00000.h5"), "kept") << "a link goes, not what it leads to";
  EXPECT_FALSE(std::filesystem::exists(place / ("step-00000005." + own + ".partial"))) << "left by a kill";
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(place / ("step-00000006." + own + ".partial"))));
  EXPECT_TRUE(loads(place / "step-00000001", Model())) << "of another run";
  EXPECT_TRUE(loads(place / "step-00000009", Model())) << "of another run, where this one had a step 9";
  EXPECT_EQ(read_bytes(place / "step-00000008/notes.txt"), "notes") << "a checkpoint that the user put something into";
  EXPECT_TRUE(loads(place / "step-00000008", Model()));
  EXPECT_FALSE(std::filesystem::exists(place / ("step-00000009." + own)));
  EXPECT_FALSE(std::filesystem::exists(place / "step-00000010"));
  EXPECT_TRUE(loads(place / "step-00000011", Model()) && loads(place / "step-00000012", Model()));
}

TEST(CheckpointDirectory, what_a_killed_replacement_left_is_its_owners) {
  const TemporaryDirectory directory;
  const std::string own = new_owner();
  const Path path = save_as(own, directory / "c", 5);
  const Path replaced = Path(path) += "." + own + ".replaced.partial";
  std::filesystem::rename(path, replaced);
  EXPECT_TRUE(find_checkpoints(directory / "c").at(0).complete);
  save_as(new_owner(), directory / "c", 6);
  EXPECT_TRUE(std::filesystem::exists(replaced));
  save_as(own, directory / "c", 7);
  EXPECT_TRUE(loads(path, Model()));
}

TEST(CheckpointDirectory, only_names_that_a_run_gives_are_checkpoints) {
  const TemporaryDirectory directory;
  for (const char* const name : {"step-00000001.old", "step-00000001 ", "step--0000001", "step-0000001",
                                 "step-00000001\n", "step-99999999999999999999", "step-00000001.xyz.partial"})
    std::filesystem::create_directories(directory / "c" / name);
  EXPECT_TRUE(find_checkpoints(directory / "c").empty());
}

}  // namespace
}  // namespace espalier::test
