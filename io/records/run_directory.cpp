// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/input_limits.hpp"
#include "io/machine.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_location.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

std::string who(const RunRecord& record) {
  return fmt::format("process {} on {}, started {}", record.pid, record.host, record.started);
}

// Held while run.json is written: any rank may record a failure while rank 0 adds details, through one temporary
// file. Where the file system has no locks it is not held; nobody holds it for longer than a write takes.
FileDescriptor take_turn(const Path& directory) {
  FileDescriptor turn(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (turn.is_open() && ::flock(turn.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return turn;
}

[[noreturn]] void refuse_owned(const Path& path, const std::optional<RunRecord>& owner) {
  throw Error(ExitCode::usage, {.what = "another job runs in this run directory",
                                .where = path.string(),
                                .got = owner ? who(*owner) : "a process that holds its lock",
                                .wanted = "a run directory that no other job uses",
                                .todo = "wait for that job, stop it, or set run.directory to another directory"});
}

}  // namespace

void record_failure(const Path& directory, const std::string& cause, ExitCode code) noexcept {
  try {
    const FileDescriptor turn = take_turn(directory);
    std::optional<RunRecord> record = read_run_record(directory);
    if (!record || record->state != RunState::running)
      return;
    end_record(*record, RunState::failed, cause);
    record->exit_code = static_cast<int>(code);
    write_file_atomically(directory / RunFile::record, json_text(to_json(*record), 1) + "\n");
  } catch (...) {  // a full disk, say: whoever looks finds "running" without a process
  }
}

RunDirectory::RemoveUnlessBegun::~RemoveUnlessBegun() {
  std::error_code ignored;
  for (const Path& path : paths)
    std::filesystem::remove(path, ignored);  // a directory only if it is empty
}

RunDirectory::RunDirectory(Path path) : path_(std::move(path)) {
  require_allowed_location(path_);
  make_directory();
  take_ownership();
  const std::optional<std::string> known = known_id();
  id_ = known.value_or(new_owner());
  require_only_files_of_a_run(path_, previous_ || known);
  require_no_copy();
  require_writable_directories(path_, id_);
  describe_lost();
  describe_unfinished();
}

RunDirectory::~RunDirectory() = default;

std::string RunDirectory::id_in_lock() const {
  std::array<char, 16> id = {};
  const ssize_t size = ::pread(lock_.get(), id.data(), id.size(), 0);
  return {id.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

// run.json is written again and again; this once.
void RunDirectory::keep_id_in_lock() const {
  if (id_in_lock() != id_ && ::pwrite(lock_.get(), id_.data(), id_.size(), 0) != static_cast<ssize_t>(id_.size()))
    throw_write_error("cannot write to the run directory", path_ / "run.lock", errno);
}

std::optional<std::string> RunDirectory::known_id() const {
  if (previous_ && is_owner(previous_->id))
    return previous_->id;
  if (const std::string id = id_in_lock(); is_owner(id))
    return id;
  return id_of_checkpoints();
}

// Where both files are lost, the run's checkpoints still know it. Behind a link they may be another's.
std::optional<std::string> RunDirectory::id_of_checkpoints() const {
  std::error_code ignored;
  std::optional<std::string> id;
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(checkpoints(), ignored)))
    return id;
  for (const CheckpointEntry& entry : find_checkpoints(checkpoints())) {
    if (!entry.complete || entry.owner.empty())
      continue;
    if (id && id != entry.owner)
      throw Error(ExitCode::usage, {.what = "run.json is missing, and the checkpoints belong to more than one run",
                                    .where = checkpoints().string(),
                                    .got = fmt::format("those of {} and {}", *id, entry.owner),
                                    .wanted = "run.json, which says which of them are this run's",
                                    .todo = "restore it, or move the checkpoints of other runs elsewhere"});
    id = entry.owner;
  }
  return id;
}

// A copy has the id of the original: through links to one place each would remove the other's checkpoints.
void RunDirectory::require_no_copy() const {
  if (!previous_ || previous_->directory.empty())
    return;
  std::error_code ignored;
  const Path original = previous_->directory;
  const std::optional<RunRecord> record = read_run_record(original);
  if (!record || record->id != id_ || std::filesystem::equivalent(original, path_, ignored) ||
      !std::filesystem::equivalent(original / RunFolder::checkpoints, checkpoints(), ignored))
    return;
  throw Error(ExitCode::usage,
              {.what = "the run directory is a copy, and both directories share one place for checkpoints",
               .where = path_.string(),
               .got = "a copy of " + original.string(),
               .wanted = "a separate place for the checkpoints of each run",
               .todo = "copy the checkpoints, too, or start in a new run.directory with --resume DIR"});
}

void RunDirectory::make_directory() {
  std::error_code ignored;
  const auto is_there = [&](const Path& path) {  // be it a link that leads nowhere
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
  };
  for (Path missing = path_.lexically_normal(); !missing.empty() && !is_there(missing); missing = missing.parent_path())
    made_.paths.push_back(missing);
  make_directories(path_);
}

// False while another process holds the lock. A refused launch removes the lock file that it made, so the one that we
// hold may have lost its name meanwhile.
bool RunDirectory::take_lock() {
  const Path lock_path = path_ / "run.lock";
  require_no_link(lock_path);
  constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  int descriptor = ::open(lock_path.c_str(), flags | O_EXCL, 0644);
  const bool is_new = descriptor >= 0;
  if (!is_new && errno == EEXIST)
    descriptor = ::open(lock_path.c_str(), flags, 0644);
  if (descriptor < 0)
    throw_write_error("cannot write to the run directory", lock_path, errno);
  lock_ = FileDescriptor(descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return false;
  if (!holds_lock_at(lock_path))
    return false;
  if (is_new)
    made_.paths.insert(made_.paths.begin(), lock_path);
  return true;
}

bool RunDirectory::holds_lock_at(const Path& lock_path) const {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(lock_.get(), &held) == 0 && ::stat(lock_path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

void RunDirectory::require_in_place() const {
  if (holds_lock_at(path_ / "run.lock"))
    return;
  std::error_code ignored;
  const Path lock_path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", lock_.get()), ignored);
  const bool was_moved = holds_lock_at(lock_path);
  const Error error(
      ExitCode::write,
      {.what = "the run directory was moved or removed during the run",
       .where = path_.string(),
       .got =
           was_moved ? "the directory of this run is now " + lock_path.parent_path().string() : "its run.lock is gone",
       .wanted = "the directory that this launch began in",
       .todo = "move it back, or set run.directory to its new path; the same command resumes from its checkpoints"});
  if (was_moved)
    record_failure(lock_path.parent_path(), error.what(), error.code());
  throw error;
}

// Two guards: a lock, which ends with its process, and the record, for file systems where locks do nothing. A job that
// was just killed keeps both for a moment.
void RunDirectory::take_ownership() {
  constexpr auto patience = std::chrono::seconds(2);
  const auto is_free = [&] {
    const bool locked = take_lock();
    previous_ = read_run_record(path_);
    return locked && (!previous_ || previous_->pid == ::getpid() || !is_alive_here(*previous_));
  };
  for (const auto start = std::chrono::steady_clock::now(); !is_free();) {
    if (std::chrono::steady_clock::now() - start > patience)
      refuse_owned(path_, previous_);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void RunDirectory::begin_launch(const std::optional<std::string>& config_text) {
  make_directories(checkpoints());
  made_.paths.clear();
  keep_id_in_lock();
  std::error_code ignored;
  record_ = record_of_this_process();
  record_.id = id_;
  record_.directory = std::filesystem::canonical(path_, ignored).string();
  if (previous_) {
    record_.starts = previous_->starts;
    record_.details = previous_->details;
  }
  ++record_.starts;
  write_record();
  make_directories(state());
  if (config_text)
    write_file_atomically(path_ / RunFile::config, *config_text);
}

void RunDirectory::describe_lost() {
  std::error_code ignored;
  const Path path = path_ / RunFile::record;
  if (!previous_ && std::filesystem::exists(path, ignored))
    lost_ = fmt::format(
        "{} is damaged: the records of earlier launches are lost, so launches without progress (exit 93) are counted "
        "from zero",
        path.string());
}

// Whoever holds the lock and finds "running" knows that the owner is gone, if it ran here: take_ownership() has looked.
// A process of another host is out of sight, and its lock need not reach us.
void RunDirectory::describe_unfinished() {
  if (!previous_ || previous_->state != RunState::running)
    return;
  const bool here = previous_->host == host_name();
  unfinished_ = {*previous_, "", read_progress_files(state())};
  std::string& text = unfinished_->text;
  text = fmt::format("the previous launch ({}) was killed or crashed", who(*previous_));
  if (!here)
    text = fmt::format(
        "the previous launch ({}) has not ended; {} cannot see whether it still runs: if it does, stop one of the two",
        who(*previous_), host_name());
  else if (is_of_earlier_boot(*previous_))
    text += "; the machine was restarted since";
  if (!unfinished_->progress.empty())
    text += fmt::format("; {} left {} progress", counted(static_cast<Index>(unfinished_->progress.size()), "rank"),
                        unfinished_->progress.size() == 1 ? "its" : "their");
}

void RunDirectory::write_record() const {
  write_file_atomically(path_ / RunFile::record, json_text(to_json(record_), 1) + "\n");
}

void RunDirectory::update(const nlohmann::json& details) {
  require_in_place();
  const FileDescriptor turn = take_turn(path_);
  if (const std::optional<RunRecord> written = read_run_record(path_); written && written->state == RunState::failed)
    return;  // by another rank, meanwhile: that stays the last word
  record_.details.update(details);
  write_record();
}

void RunDirectory::finish(RunState end, const std::string& cause) {
  require_in_place();
  const FileDescriptor turn = take_turn(path_);
  end_record(record_, end, cause);
  write_record();
}

}  // namespace espalier
