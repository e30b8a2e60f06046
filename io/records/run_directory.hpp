// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/file.hpp"
#include "io/records/progress_file.hpp"
#include "io/records/run_paths.hpp"
#include "io/records/run_record.hpp"

namespace espalier {

/// Writes "failed", the cause and its exit code into run.json, unless an end is recorded already: the first
/// to know is the one who knows the cause. Any rank may call it. Never throws: the error at hand matters more.
void record_failure(const Path& directory, const std::string& cause, ExitCode code) noexcept;

/// A launch that did not exit cleanly: killed, or left with exit(0) before the end.
struct UnfinishedLaunch {
  RunRecord record;
  std::string text;  ///< a sentence for the user: process, host, when, how far; whether it may still live
  std::vector<StoredProgress> progress;
};

/// The directory of a run, owned by this process (one process a job: rank 0) as long as the object lives.
///
/// A launch first looks (the constructor), then begins. What refuses it in between leaves the directory as it was: the
/// record of the run is that of the launches that trained.
class RunDirectory {
 public:
  /// Takes the directory, and makes it where there is none. Throws Error(usage) if a living process owns it, if there
  /// is a file that no run has written where one would, or a link in place of a directory other than checkpoints, or
  /// if its checkpoints may be another run's; Error(write) if it cannot be written.
  explicit RunDirectory(Path path);
  RunDirectory(const RunDirectory&) = delete;
  /// Without finish() run.json keeps saying "running", with a process that is gone.
  ~RunDirectory();

  /// Makes run.json say "running", and stores the config where one is given.
  void begin_launch(const std::optional<std::string>& config_text = std::nullopt);

  const Path& path() const { return path_; }
  const std::string& id() const { return id_; }
  Path checkpoints() const { return path_ / RunFolder::checkpoints; }
  Path state() const { return path_ / RunFolder::state; }

  /// The record that the last launch left, before this one.
  const std::optional<RunRecord>& previous() const { return previous_; }

  /// Set when there was a run.json that cannot be read: a sentence for the user about what is lost with it.
  const std::optional<std::string>& lost() const { return lost_; }

  /// Set when that launch did not exit cleanly. The progress of its ranks stays in state() until the caller removes
  /// them.
  const std::optional<UnfinishedLaunch>& unfinished() const { return unfinished_; }

  /// path() must still lead to the directory that was taken: somebody may have moved or removed it, and what is written
  /// next would make another. @throws Error (write) where it does not; the failure is recorded where the directory
  /// lies.
  void require_in_place() const;

  /// Rewrites run.json with more details, unless a rank has recorded a failure meanwhile. As finish(), requires
  /// the directory to be in place.
  void update(const nlohmann::json& details);

  /// Records the end of the launch. Nothing else makes a run completed. @param end completed or preempted; a failure is
  /// recorded by record_failure()
  void finish(RunState end, const std::string& cause = "");

 private:
  void make_directory();
  bool take_lock();
  bool holds_lock_at(const Path& lock_path) const;
  void take_ownership();
  std::string id_in_lock() const;
  void keep_id_in_lock() const;
  std::optional<std::string> known_id() const;
  std::optional<std::string> id_of_checkpoints() const;
  void require_no_copy() const;
  void describe_lost();
  void describe_unfinished();
  void write_record() const;

  Path path_;
  std::string id_;
  FileDescriptor lock_;
  std::optional<RunRecord> previous_;
  std::optional<std::string> lost_;
  std::optional<UnfinishedLaunch> unfinished_;
  RunRecord record_;

  // What the constructor made, to be removed unless the launch begins. The last member: it goes while the lock holds.
  struct RemoveUnlessBegun {
    std::vector<Path> paths;
    ~RemoveUnlessBegun();
  } made_;
};

}  // namespace espalier
