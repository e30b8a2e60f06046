// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint/atomic_directory.hpp"
#include "io/records/run_directory.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

const std::string config = "[model]\nhidden_size = 64\n[run]\nsteps = 10\n";

// A start that got so far as to train.
struct BegunLaunch : RunDirectory {
  explicit BegunLaunch(const Path& path, const std::string& config_text = config) : RunDirectory(path) {
    begin_launch(config_text);
  }
};

}  // namespace

TEST(RunDirectory, keeps_config_and_record) {
  const TemporaryDirectory directory;
  const Path path = directory / "runs/a";
  {
    BegunLaunch run(path);
    EXPECT_FALSE(run.previous());
    EXPECT_EQ(read_run_record(path)->state, RunState::running);
    EXPECT_EQ(read_run_record(path)->pid, ::getpid());
    run.update({{"step", 7}});
    run.finish(RunState::preempted, "SIGTERM");
  }
  EXPECT_EQ(read_bytes(path / "config.toml"), config);
  EXPECT_TRUE(std::filesystem::is_directory(path / "checkpoints"));
  const std::string longer = "[model]\nhidden_size = 64\n[run]\nsteps = 20\n";
  BegunLaunch again(path, longer);
  EXPECT_EQ(read_bytes(path / "config.toml"), longer);
  ASSERT_TRUE(again.previous());
  EXPECT_EQ(again.previous()->state, RunState::preempted);
  EXPECT_EQ(again.previous()->cause, "SIGTERM");
  EXPECT_EQ(again.previous()->details["step"], 7);
  again.finish(RunState::completed);
  EXPECT_EQ(read_run_record(path)->starts, 2);
  EXPECT_FALSE(read_run_record(path)->ended.empty());
}

// Every file with its bytes, every directory with its name.
std::map<std::string, std::string> content_of(const Path& directory) {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    content[entry.path().string()] = entry.is_regular_file() ? read_bytes(entry.path()) : "";
  return content;
}

TEST(RunDirectory, before_it_signs_on_nothing_changes) {
  const TemporaryDirectory directory;
  const Path path = directory / "runs/deep/a";
  { const RunDirectory refused(path); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "a refused start left what it had made";
  {
    const RunDirectory refused(path);
    EXPECT_TRUE(std::filesystem::is_directory(path)) << "held while it looks";
    expect_error(ExitCode::usage, {"another job"}, [&] { const RunDirectory second(path); });
    EXPECT_TRUE(std::filesystem::exists(path / "run.lock")) << "that of the first must stay";
  }
  for (const RunState state : {RunState::running, RunState::failed, RunState::completed}) {
    {
      BegunLaunch run(path);
      if (state == RunState::failed)
        record_failure(path, "", ExitCode::write);
      else if (state != RunState::running)
        run.finish(RunState::completed);
    }
    const auto before = content_of(path);
    EXPECT_EQ(read_run_record(path)->state, state);
    { const RunDirectory refused(path); }
    EXPECT_EQ(content_of(path), before);
  }
}

TEST(RunDirectory, a_damaged_record_is_told_of) {
  const TemporaryDirectory directory;
  const Path path = directory / "a";
  BegunLaunch(path).finish(RunState::completed);
  EXPECT_FALSE(RunDirectory(path).lost());
  write_bytes(path / "run.json", "{\"bro");
  BegunLaunch run(path);
  ASSERT_TRUE(run.lost());
  EXPECT_NE(run.lost()->find("a/run.json is damaged"), std::string::npos) << *run.lost();
  EXPECT_EQ(read_run_record(path)->starts, 1);
  EXPECT_FALSE(RunDirectory(directory / "new").lost());
}

// Neither is anything written to what lies at its path now.
TEST(RunDirectory, one_that_was_moved_or_removed_is_missed) {
  const TemporaryDirectory directory;
  const Path path = directory / "a";
  {
    BegunLaunch run(path);
    run.require_in_place();
    std::filesystem::rename(path, directory / "b");
    expect_error(ExitCode::write, {"moved or removed", (directory / "b").string()}, [&] { run.require_in_place(); });
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(read_run_record(directory / "b")->state, RunState::failed) << "recorded where it lies";
  EXPECT_EQ(read_run_record(directory / "b")->exit_code, static_cast<int>(ExitCode::write));
  {
    BegunLaunch run(path);
    std::filesystem::rename(path, directory / "c");
    const BegunLaunch other(path);
    const std::string before = read_bytes(path / "run.json");
    expect_error(ExitCode::write, {"moved or removed"}, [&] { run.update({{"step", 7}}); });
    expect_error(ExitCode::write, {"moved or removed"}, [&] { run.finish(RunState::completed); });
    EXPECT_EQ(read_bytes(path / "run.json"), before);
  }
  BegunLaunch run(path);
  std::filesystem::remove_all(path);
  expect_error(ExitCode::write, {"moved or removed", "gone"}, [&] { run.finish(RunState::completed); });
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Runs `action` in a process of its own that then ends in its own way.
template <class Action>
pid_t in_child(const Action& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    action();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(RunDirectory, a_launch_that_did_not_exit_cleanly_is_reported) {
  const TemporaryDirectory directory;
  const Path path = directory / "a";
  const pid_t killed = in_child([&] {
    const BegunLaunch run(path);
    for (const int rank : {0, 1})
      ProgressFile(run.state(), rank, sizeof(int)).as<int>() = 10 + rank;
    ::raise(SIGKILL);
  });
  const pid_t left = in_child([&] {  // with exit code 0, but before the end
    BegunLaunch run(path);
    if (!run.unfinished() || run.unfinished()->text.find("was killed") == std::string::npos ||
        run.unfinished()->record.pid != killed || run.unfinished()->progress.size() != 2 ||
        run.unfinished()->progress[1].as<int>() != 11)
      record_failure(path, "the child did not find what the one before it had left", ExitCode::defect);
    remove_progress_files(run.state());
  });
  ASSERT_EQ(read_run_record(path)->state, RunState::running) << read_run_record(path)->cause;
  {
    BegunLaunch run(path);
    ASSERT_TRUE(run.unfinished());
    EXPECT_EQ(run.unfinished()->record.pid, left);
    EXPECT_EQ(run.unfinished()->record.starts, 2);
    EXPECT_TRUE(run.unfinished()->progress.empty());
    const std::string& text = run.unfinished()->text;
    for (const std::string& part : {std::string("process ") + std::to_string(left), run.unfinished()->record.started,
                                    std::string("was killed or crashed")})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    run.finish(RunState::completed);
  }
  EXPECT_FALSE(RunDirectory(path).unfinished());
}

TEST(RunDirectory, of_another_host_it_says_that_it_cannot_know) {
  const TemporaryDirectory directory;
  { BegunLaunch run(directory / "a"); }
  RunRecord record = *read_run_record(directory / "a");
  record.host = "node-17";
  record.pid = 1;  // lives here, which proves nothing about node-17
  write_bytes(directory / "a/run.json", to_json(record).dump());
  {
    const BegunLaunch run(directory / "a");
    ASSERT_TRUE(run.unfinished());
    EXPECT_NE(run.unfinished()->text.find("process 1 on node-17"), std::string::npos);
    EXPECT_NE(run.unfinished()->text.find("cannot see whether it still runs"), std::string::npos)
        << run.unfinished()->text;
  }
  record = *read_run_record(directory / "a");
  record.boot = "another";  // this host, before it was restarted
  record.pid = 1;
  write_bytes(directory / "a/run.json", to_json(record).dump());
  const BegunLaunch run(directory / "a");
  EXPECT_EQ(run.unfinished()->text.find("cannot see whether"), std::string::npos);
  EXPECT_NE(run.unfinished()->text.find("was restarted"), std::string::npos);
}

TEST(RunDirectory, a_living_owner_is_named_and_a_dead_one_is_not_in_the_way) {
  const TemporaryDirectory directory;
  WaitingProcess child([&] { return std::make_unique<BegunLaunch>(directory / "a"); });
  const auto open = [&] { RunDirectory(directory / "a"); };
  expect_error(ExitCode::usage, {"another job", "process " + std::to_string(child.id())}, open);
  std::filesystem::remove(directory / "a/run.lock");  // where locks do nothing, the record still speaks
  expect_error(ExitCode::usage, {"process " + std::to_string(child.id())}, open);
  child.kill();
  BegunLaunch run(directory / "a");
  EXPECT_EQ(run.previous()->state, RunState::running);  // and gone: it did not exit cleanly
  EXPECT_EQ(run.previous()->pid, child.id());
  EXPECT_TRUE(run.unfinished());
}

TEST(RunDirectory, a_damaged_record_is_not_in_the_way) {
  const TemporaryDirectory directory;
  { BegunLaunch run(directory / "a"); }
  write_bytes(directory / "a/run.json", "{\"state\": \"runn");
  BegunLaunch run(directory / "a");
  EXPECT_FALSE(run.previous());
}

TEST(RunDirectory, unwritable_places_are_write_errors) {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "x");
  expect_error(ExitCode::write, {"file/a"}, [&] { RunDirectory(directory / "file/a"); });
  expect_error(ExitCode::write, {"/proc/a"}, [&] { RunDirectory("/proc/a"); });
}

// A link on the way may lead to a file system that is not mounted here.
TEST(RunDirectory, a_refused_start_removes_no_link_on_the_way) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory_symlink(directory / "nowhere/runs", directory / "runs");
  expect_error(ExitCode::write, {"runs/a"}, [&] { RunDirectory(directory / "runs/a"); });
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "runs"));
}

// Not first at a save, hours later. Nobody, not even root, makes a directory in /proc.
TEST(RunDirectory, checkpoints_that_cannot_be_written_are_told_at_once) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "run");
  std::filesystem::create_directory_symlink("/proc", directory / "run/checkpoints");
  expect_error(ExitCode::write, {"a directory of the run cannot be written", "run/checkpoints"},
               [&] { RunDirectory(directory / "run"); });
  EXPECT_FALSE(std::filesystem::exists(directory / "run/run.json"));
  std::filesystem::remove(directory / "run/checkpoints");
  std::filesystem::create_directories(directory / "scratch");
  std::filesystem::create_directory_symlink("../scratch", directory / "run/checkpoints");
  RunDirectory(directory / "run").begin_launch("");
  EXPECT_TRUE(std::filesystem::is_empty(directory / "scratch")) << "what was tried is removed";
}

TEST(RunDirectory, a_place_without_permission_is_a_write_error) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "permission bits do not bind root";
  const TemporaryDirectory directory;
  std::filesystem::permissions(directory.path(),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_error(ExitCode::write, {"Permission denied"}, [&] { RunDirectory(directory / "b"); });
  std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_all);
}

TEST(RunDirectory, of_ranks_that_fail_together_one_signs_off) {
  const TemporaryDirectory directory;
  for (int round = 0; round < 40; ++round) {
    const Path path = directory / std::to_string(round);
    const BegunLaunch run(path);
    std::latch together(6);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 6; ++rank)
      ranks.emplace_back([&, rank] {
        together.arrive_and_wait();
        record_failure(path, "rank " + std::to_string(rank), ExitCode::communication);
      });
    for (std::thread& rank : ranks)
      rank.join();
    ASSERT_EQ(read_run_record(path)->state, RunState::failed) << "round " << round;
    ASSERT_TRUE(read_run_record(path)->cause.starts_with("rank "));
    ASSERT_EQ(read_run_record(path)->exit_code, 6);
  }
}

TEST(RunDirectory, what_has_failed_is_not_updated) {
  const TemporaryDirectory directory;
  BegunLaunch run(directory.path());
  record_failure(directory.path(), "rank 1 found no space", ExitCode::write);
  run.update({{"facts", 1}});
  const std::optional<RunRecord> record = read_run_record(directory.path());
  EXPECT_EQ(record->state, RunState::failed);
  EXPECT_EQ(record->cause, "rank 1 found no space");
}

// What a run removes and replaces by name it must have made itself.
TEST(RunDirectory, links_in_place_of_its_directories_are_refused) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "elsewhere");
  write_bytes(directory / "elsewhere/rank-00000.position", "keep me");
  for (const bool is_run : {false, true})
    for (const char* const name :
         {"state", "ranks", "trace", "incidents", "report.html", "run.json", "run.lock", "config.toml", "metrics.jsonl",
          "metrics.csv", "samples.jsonl", "tensorboard", "prediction.json"}) {
      const Path path = directory / (std::string(name) + (is_run ? "-again" : ""));
      if (is_run)
        BegunLaunch(path).finish(RunState::completed);
      std::filesystem::create_directories(path);
      std::filesystem::remove_all(path / name);
      std::filesystem::create_directory_symlink(directory / "elsewhere", path / name);
      const auto before = content_of(directory.path());
      expect_error(ExitCode::usage, {name, "is a link", "elsewhere"}, [&] { RunDirectory{path}; });
      EXPECT_EQ(content_of(directory.path()), before);
    }
}

TEST(RunDirectory, checkpoints_may_be_a_link_and_so_may_the_directory) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "scratch/c");
  std::filesystem::create_directories(directory / "real");
  std::filesystem::create_directory_symlink(directory / "real", directory / "run");
  std::filesystem::create_directory_symlink(directory / "scratch/c", directory / "real/checkpoints");
  std::string id;
  {
    BegunLaunch run(directory / "run");
    id = run.id();
    EXPECT_TRUE(is_owner(id));
  }
  {
    BegunLaunch again(directory / "run");
    EXPECT_EQ(again.id(), id);
    EXPECT_EQ(read_run_record(directory / "real")->id, id);
    again.finish(RunState::completed);
  }
  RunRecord edited = *read_run_record(directory / "real");
  edited.id = "../../elsewhere";
  write_bytes(directory / "real/run.json", to_json(edited).dump());
  EXPECT_TRUE(is_owner(RunDirectory(directory / "run").id())) << "it becomes part of names";
}

// A directory with a link to checkpoints in it may be prepared by the user, with a config.toml of the user's.
TEST(RunDirectory, files_of_the_user_are_not_written_over) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "scratch");
  for (const std::string place : {"", "a directory", "a link"})
    for (const char* const name : {"config.toml", "metrics.jsonl", "prediction.json", "report.html", "trace/trace.json",
                                   "ranks/rank-00000.jsonl", "state/rank-00000.position", "incidents/mine"}) {
      std::filesystem::remove_all(directory / "run");
      std::filesystem::create_directories((directory / "run" / name).parent_path());
      write_bytes(directory / "run" / name, "mine");
      if (place == "a directory")
        std::filesystem::create_directory(directory / "run/checkpoints");
      if (place == "a link")
        std::filesystem::create_directory_symlink(directory / "scratch", directory / "run/checkpoints");
      expect_error(ExitCode::usage, {"Espalier did not write"}, [&] { RunDirectory{directory / "run"}; });
      EXPECT_EQ(read_bytes(directory / "run" / name), "mine");
    }
}

TEST(RunDirectory, replacing_a_file_removes_no_other) {
  const TemporaryDirectory directory;
  write_bytes(directory / "memo.partial", "mine");
  write_file_atomically(directory / "memo", "new");
  EXPECT_EQ(read_bytes(directory / "memo"), "new");
  EXPECT_EQ(read_bytes(directory / "memo.partial"), "mine");
}
