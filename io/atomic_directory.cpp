// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_directory.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <string_view>
#include <vector>

namespace espalier {
namespace {

Path partial_path(Path path) { return path += partial_suffix; }

void remove_tree(const Path& path) {  // removes symbolic links, never follows them
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    throw_write_error("cannot remove a directory", path, error.value());
}

// The kernel or the file system cannot exchange two names.
bool cannot_exchange(int error_number) { return error_number == EINVAL || error_number == ENOSYS; }

// Directories (and links) whose name ends with `suffix`; files of that name belong to write_file_atomically().
std::vector<Path> entries_ending_with(const Path& directory, std::string_view suffix) {
  std::vector<Path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().native().ends_with(suffix) && !std::filesystem::is_regular_file(entry.symlink_status(error)))
      found.push_back(entry.path());
  return found;
}

}  // namespace

Path replaced_original(const Path& path) {
  const std::string& name = path.native();
  if (!name.ends_with(replaced_suffix))
    return {};
  std::error_code error;
  Path original = name.substr(0, name.size() - std::string_view(replaced_suffix).size());
  return std::filesystem::exists(std::filesystem::symlink_status(original, error)) ? Path() : original;
}

Path begin_directory(const Path& path) {
  const Path parent = path.parent_path();
  make_directories(parent);
  for (const Path& replaced : entries_ending_with(parent, replaced_suffix))
    if (const Path original = replaced_original(replaced); !original.empty())
      if (::rename(replaced.c_str(), original.c_str()) != 0)
        throw_write_error("cannot bring back a directory whose replacement was killed", original, errno);
  for (const Path& leftover : entries_ending_with(parent, partial_suffix))
    remove_tree(leftover);
  Path partial = partial_path(path);
  std::error_code error;
  if (!std::filesystem::create_directory(partial, error))
    throw_write_error("cannot create a directory", partial, error ? error.value() : EEXIST);
  return partial;
}

void publish_directory(const Path& path) {
  const Path partial = partial_path(path);
  sync_directory(partial);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    if (::rename(partial.c_str(), path.c_str()) != 0)
      throw_write_error("cannot publish a directory", path, errno);
    sync_directory(path.parent_path());
  } else if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(path.parent_path());
    remove_tree(partial);  // which now is the old one
  } else if (cannot_exchange(errno)) {
    impl::replace_by_two_renames(path);
  } else {
    throw_write_error("cannot publish a directory", path, errno);
  }
}

void impl::replace_by_two_renames(const Path& path) {
  const Path partial = partial_path(path);
  const Path replaced = Path(path) += replaced_suffix;
  remove_tree(replaced);
  if (::rename(path.c_str(), replaced.c_str()) != 0 || ::rename(partial.c_str(), path.c_str()) != 0)
    throw_write_error("cannot publish a directory", path, errno);
  sync_directory(path.parent_path());
  remove_tree(replaced);
}

void remove_directory(const Path& path) {
  Path partial = partial_path(path);
  remove_tree(partial);
  if (::rename(path.c_str(), partial.c_str()) != 0)
    throw_write_error("cannot remove a directory", path, errno);
  sync_directory(path.parent_path());
  remove_tree(partial);
}

}  // namespace espalier
