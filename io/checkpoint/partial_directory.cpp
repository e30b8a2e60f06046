// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/partial_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>

namespace espalier {
namespace {

bool stands_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found;
}

// Without links and without a slash at the end.
Path resolved(const Path& directory) {
  std::error_code error;
  Path whole = std::filesystem::weakly_canonical(directory, error);
  if (error)
    throw_write_error("a path cannot be followed", directory, error.value());
  if (whole.is_relative())  // nothing of it is there
    whole = std::filesystem::current_path() / whole;
  return whole.has_filename() ? whole : whole.parent_path();
}

std::vector<Path> missing_parents(Path directory) {
  std::vector<Path> missing;
  for (directory = directory.parent_path(); !stands_there(directory); directory = directory.parent_path())
    missing.push_back(directory);
  return missing;
}

void rename_directory(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw_write_error("cannot rename a directory", to, errno);
}

// False while another process has it. A file system without locks gives it at once.
bool take_lock(FileDescriptor& lock, const Path& directory) {
  lock = FileDescriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return !lock.is_open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void require_lock(FileDescriptor& lock, const Path& directory) {
  if (!take_lock(lock, directory))
    throw Error(ExitCode::write, {.what = "another process is writing this directory",
                                  .where = directory.string(),
                                  .wanted = "one writer at a time",
                                  .todo = "wait for it, or name another output"});
}

void remove_all_in(const Path& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    std::filesystem::remove_all(entry.path(), ignored);
}

}  // namespace

void require_new_directory(const Path& directory) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(directory, error);
  if (!stands_there(directory) || (is_directory && std::filesystem::is_empty(directory, error)))
    return;
  throw Error(ExitCode::usage, {.what = "the output needs a new or empty folder",
                                .where = directory.string(),
                                .got = is_directory ? "a folder with files" : "a file or a link",
                                .wanted = "a new or empty folder",
                                .todo = "choose another --output"});
}

PartialDirectory::PartialDirectory(const Path& directory) {
  require_new_directory(directory);
  directory_ = resolved(directory);
  partial_ = directory_.string() + ".espalier.partial";  // a name that nobody else gives
  current_ = partial_;
  parents_ = missing_parents(directory_);
  try {
    create();
  } catch (...) {
    remove();
    throw;
  }
}

void PartialDirectory::create() {
  std::error_code error;
  make_directories(directory_.parent_path());
  if (stands_there(partial_)) {
    require_lock(lock_, partial_);
    std::filesystem::remove_all(partial_, error);
  }
  was_there_ = stands_there(directory_);
  if (was_there_)
    rename_directory(directory_, partial_);
  else if (!std::filesystem::create_directory(partial_, error))
    throw_write_error("cannot create a directory", partial_, error ? error.value() : EEXIST);
  require_lock(lock_, partial_);
  is_ours_ = true;
}

PartialDirectory::~PartialDirectory() {
  if (!is_published_)
    remove();
}

void PartialDirectory::remove() noexcept {
  std::error_code ignored;
  if (is_ours_) {
    remove_all_in(current_);
    if (was_there_)
      std::filesystem::rename(current_, directory_, ignored);
    else
      std::filesystem::remove(current_, ignored);
  }
  for (const Path& parent : parents_)
    std::filesystem::remove(parent, ignored);
}

void PartialDirectory::publish() {
  sync_directory(partial_);
  if (stands_there(directory_))
    require_new_directory(directory_);  // somebody was faster
  rename_directory(partial_, directory_);
  current_ = directory_;
  sync_directory(directory_.parent_path());
  is_published_ = true;
}

}  // namespace espalier
