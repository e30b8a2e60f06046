// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/partial_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace espalier {
namespace {

[[noreturn]] void refuse_second_writer(const Path& path) {
  throw Error(ExitCode::write, {.what = "another process is writing this file",
                                .where = path.string(),
                                .got = partial_file_path(path).string() + ", which it holds",
                                .wanted = "one writer at a time",
                                .todo = "wait for it, or name another output"});
}

// Takes the lock that a writer holds on what it writes; a file system that has no locks gives it at once. False while
// another has it.
bool takes_lock(const FileDescriptor& file) {
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool is_at(const FileDescriptor& file, const Path& path) {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(file.get(), &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

// What an earlier, killed writer left under the temporary name is ours to remove; nothing else is.
Path fresh_temporary(const Path& path, const OutputMark& mark) {
  Path temporary = partial_file_path(path);
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(temporary, missing)))
    return temporary;
  const FileDescriptor left(::open(temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (left.is_open() && !takes_lock(left))
    refuse_second_writer(path);
  const bool is_file = std::filesystem::is_regular_file(std::filesystem::symlink_status(temporary));
  if (!is_file || (std::filesystem::file_size(temporary, missing) > 0 && !is_own_output(temporary, mark)))
    throw Error(ExitCode::write, {.what = "another file has the name of the unfinished output",
                                  .where = temporary.string(),
                                  .got = "a file of another kind",
                                  .wanted = fmt::format("no file of this name, or an unfinished one: {}", mark.kind),
                                  .todo = "move it away, or choose another output"});
  std::filesystem::remove(temporary, missing);
  return temporary;
}

OutputFile new_file(const Path& temporary, const Path& path) {
  try {
    return OutputFile(temporary, path);
  } catch (const Error&) {
    std::error_code missing;
    if (std::filesystem::exists(temporary, missing))  // somebody was faster
      refuse_second_writer(path);
    throw;
  }
}

OutputFile left_file(const Path& temporary, const Path& path, const OutputMark& mark, std::uint64_t bytes) {
  std::error_code missing;
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open() || !is_own_output(temporary, mark) || std::filesystem::file_size(temporary, missing) < bytes)
    throw Error(ExitCode::write, {.what = "an unfinished output is gone or was changed",
                                  .where = temporary.string(),
                                  .wanted = fmt::format("{} that was begun earlier, {} bytes", mark.kind, bytes),
                                  .todo = "run the command again; it starts from the beginning"});
  return OutputFile(std::move(file), path);
}

// The lock, which outlives the file's closing. Until it is taken another writer may take the new file for a leftover.
FileDescriptor locked(const OutputFile& file, const Path& temporary, const Path& path) {
  FileDescriptor lock(::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!takes_lock(lock) || !is_at(lock, temporary))
    refuse_second_writer(path);
  return lock;
}

}  // namespace

Path partial_file_path(Path path) { return path += ".partial"; }

PartialFile::PartialFile(const Path& path, const OutputMark& mark)
    : path_(followed(path)),
      temporary_(fresh_temporary(path_, mark)),
      file_(new_file(temporary_, path)),
      lock_(locked(file_, temporary_, path)) {}

PartialFile::PartialFile(const Path& path, const OutputMark& mark, std::uint64_t kept_bytes)
    : path_(followed(path)),
      temporary_(partial_file_path(path_)),
      file_(left_file(temporary_, path, mark, kept_bytes)),
      lock_(locked(file_, temporary_, path)) {
  file_.continue_at(kept_bytes);
}

PartialFile::~PartialFile() {
  if (finished_ || !is_at(lock_, temporary_))
    return;
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void PartialFile::finish() {
  file_.sync_and_close();
  if (!is_at(lock_, temporary_))
    refuse_second_writer(path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw_write_error("cannot replace a file", path_, errno);
  finished_ = true;
  sync_directory(path_.parent_path());
}

}  // namespace espalier
