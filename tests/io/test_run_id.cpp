// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Which run a directory is, and so which checkpoints are its own.
#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_directory.hpp"
#include "tests/io/checkpoint_support.hpp"

namespace espalier::test {
namespace {

std::string id_after_launch(const Path& path) {
  RunDirectory run(path);
  run.begin_launch("[run]\n");
  return run.id();
}

std::string id_of(const Path& path) { return RunDirectory(path).id(); }

TEST(RunId, stays_where_the_record_is_lost) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "scratch");
  for (const bool linked : {false, true}) {
    const Path run = directory / (linked ? "linked" : "plain");
    std::filesystem::create_directory(run);
    if (linked)
      std::filesystem::create_directory_symlink(directory / "scratch", run / "checkpoints");
    const std::string id = id_after_launch(run);
    save_as(id, run / "checkpoints", 3);
    save_as(new_owner(), directory / "scratch", 7);
    write_bytes(run / "run.json", "{\"bro");
    EXPECT_EQ(id_of(run), id) << "damaged";
    std::filesystem::remove(run / "run.json");
    EXPECT_EQ(id_of(run), id) << "removed";
    std::filesystem::rename(run, directory / "moved");
    EXPECT_EQ(id_after_launch(directory / "moved"), id) << "moved";
    std::filesystem::remove(directory / "moved/run.json");
    std::filesystem::remove(directory / "moved/run.lock");
    if (linked)
      expect_error(ExitCode::usage, {"Espalier did not write"}, [&] { RunDirectory(directory / "moved"); });
    else
      EXPECT_EQ(id_of(directory / "moved"), id) << "only the checkpoints know it";
    std::filesystem::remove_all(directory / "moved");
  }
}

TEST(RunId, is_not_taken_from_another_run_behind_a_link) {
  const TemporaryDirectory directory;
  const std::string first = id_after_launch(directory / "a");
  save_as(first, directory / "a/checkpoints", 3);
  std::filesystem::create_directory(directory / "b");
  std::filesystem::create_directory_symlink("../a/checkpoints", directory / "b/checkpoints");
  EXPECT_NE(id_of(directory / "b"), first);
  write_bytes(directory / "b/config.toml", "mine");
  expect_error(ExitCode::usage, {"b/config.toml", "Espalier did not write"}, [&] { RunDirectory(directory / "b"); });
  std::filesystem::remove(directory / "b/config.toml");
  save_as(id_after_launch(directory / "b"), directory / "b/checkpoints", 6);
  EXPECT_EQ(id_of(directory / "a"), first);
  std::filesystem::remove(directory / "a/run.json");
  std::filesystem::remove(directory / "a/run.lock");
  expect_error(ExitCode::usage, {"to more than one run", first}, [&] { RunDirectory(directory / "a"); });
}

TEST(RunId, a_copy_may_not_share_the_place_of_the_original) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "a");
  std::filesystem::create_directory(directory / "scratch");
  std::filesystem::create_directory_symlink(directory / "scratch", directory / "a/checkpoints");
  const std::string id = id_after_launch(directory / "a");
  std::filesystem::copy(directory / "a", directory / "b",
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  expect_error(ExitCode::usage, {"the run directory is a copy", "a copy of " + (directory / "a").string()},
               [&] { RunDirectory(directory / "b"); });
  EXPECT_EQ(id_of(directory / "a"), id);
  std::filesystem::remove(directory / "b/checkpoints");
  std::filesystem::copy(directory / "scratch", directory / "b/checkpoints");
  EXPECT_EQ(id_of(directory / "b"), id) << "with checkpoints of its own";
}

TEST(RunId, a_record_of_something_else_makes_no_run) {
  const TemporaryDirectory directory;
  const Path run = directory / "run";
  std::filesystem::create_directory(run);
  for (const char* const name : {"run.json", "config.toml"}) {
    write_bytes(run / name, "{\"mine\": 1}");
    expect_error(ExitCode::usage, {"run.json", "Espalier did not write"}, [&] { RunDirectory{run}; });
  }
  EXPECT_EQ(read_bytes(run / "run.json"), "{\"mine\": 1}");
}

// Two runs save the same steps into one place.
TEST(RunId, checkpoints_of_one_step_lie_beside_each_other) {
  const TemporaryDirectory directory;
  const std::string own = new_owner();
  const std::string other = new_owner();
  for (const Index step : {3, 6, 9}) {
    for (const std::string& owner : {other, own}) {
      EXPECT_EQ(save_as(owner, directory / "c", step), place_for_checkpoint(directory / "c", step, owner));
      prune_checkpoints(directory / "c", {.last = 2}, step, owner);
    }
    save_as(own, directory / "c", step);  // again
  }
  const std::vector<std::string> wanted = {"step-00000006", "step-00000006." + own, "step-00000009",
                                           "step-00000009." + own};
  EXPECT_EQ(names_in(directory / "c"), wanted);
  for (const CheckpointEntry& entry : find_checkpoints(directory / "c"))
    EXPECT_EQ(entry.owner, entry.path.has_extension() ? own : other);
  EXPECT_EQ(set_aside_checkpoints_after(directory / "c", 6, own),
            std::vector<Path>{directory / ("c/step-00000009." + own + ".abandoned")});
  // A kill while it is removed leaves what the next save removes.
  std::filesystem::rename(directory / ("c/step-00000006." + own), directory / ("c/step-00000006." + own + ".partial"));
  save_as(own, directory / "c", 12);
  EXPECT_FALSE(std::filesystem::exists(directory / ("c/step-00000006." + own + ".partial")));
}

// Whose it is cannot be read.
TEST(RunId, a_damaged_checkpoint_behind_a_link_stays) {
  const TemporaryDirectory directory;
  const std::string own = new_owner();
  std::filesystem::create_directory(directory / "scratch");
  std::filesystem::create_directory_symlink(directory / "scratch", directory / "link");
  write_bytes(save_as(new_owner(), directory / "link", 6) / "manifest.json", "{");
  std::filesystem::remove(save_as(new_owner(), directory / "link", 8) / "rank-00000.h5");
  EXPECT_TRUE(set_aside_checkpoints_after(directory / "link", 3, own).empty());
  EXPECT_EQ(save_as(own, directory / "link", 6), directory / ("link/step-00000006." + own));
  std::filesystem::remove(save_as(own, directory / "link", 7) / "rank-00000.h5");
  EXPECT_EQ(set_aside_checkpoints_after(directory / "link", 6, own).size(), 1U) << "its manifest names us";
}

TEST(RunId, a_run_stands_for_its_own_checkpoints) {
  const TemporaryDirectory directory;
  const std::string own = id_after_launch(directory / "run");
  save_as(new_owner(), directory / "run/checkpoints", 6);
  expect_error(ExitCode::checkpoint, {"1 checkpoint of other runs"}, [&] { resolve_checkpoint(directory / "run"); });
  save_as(own, directory / "run/checkpoints", 3);
  EXPECT_EQ(resolve_checkpoint(directory / "run"), directory / "run/checkpoints/step-00000003");
}

}  // namespace
}  // namespace espalier::test
