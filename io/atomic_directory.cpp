// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_directory.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>

namespace espalier {
namespace {

Path partial_path(Path path) { return path += partial_suffix; }

void remove_tree(const Path& path) {  // removes symbolic links, never follows them
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    throw_write_error("cannot remove a directory", path, error.value());
}

}  // namespace

Path begin_directory(const Path& path) {
  make_directories(path.parent_path());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error))
    if (entry.path().extension() == partial_suffix && entry.path().filename().string().starts_with("step-"))
      remove_tree(entry.path());
  Path partial = partial_path(path);
  if (!std::filesystem::create_directory(partial, error))
    throw_write_error("cannot create a directory", partial, error ? error.value() : EEXIST);
  return partial;
}

void publish_directory(const Path& path) {
  Path partial = partial_path(path);
  sync_directory(partial);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    if (::rename(partial.c_str(), path.c_str()) != 0)
      throw_write_error("cannot publish a directory", path, errno);
  } else {
    // The old one takes the partial name, in one step where the file system can.
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
      const Path replaced = partial_path(Path(path) += ".replaced");
      if (::rename(path.c_str(), replaced.c_str()) != 0 || ::rename(partial.c_str(), path.c_str()) != 0)
        throw_write_error("cannot publish a directory", path, errno);
      sync_directory(path.parent_path());
      remove_tree(replaced);
      return;
    }
    sync_directory(path.parent_path());
    remove_tree(partial);
    return;
  }
  sync_directory(path.parent_path());
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
