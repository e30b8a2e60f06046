// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/atomic_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <cerrno>
#include <random>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/set_aside.hpp"

namespace espalier {
namespace {

constexpr std::size_t owner_digits = 16;

// What a save puts into its directory.
bool is_checkpoint_file(const std::string& name) {
  return is_shard_name(name) || name == index_name || name == manifest_name;
}

// "step-00000100" and "step-00000200", but not "step-old".
bool are_of_one_kind(std::string_view a, std::string_view b) {
  const auto before_digits = [](std::string_view name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    return last == std::string_view::npos ? std::string_view() : name.substr(0, last + 1);
  };
  const std::string_view before = before_digits(a);
  return before == before_digits(b) && before.size() < a.size() && before.size() < b.size();
}

// Removes the files of a checkpoint, and the directory unless there are others. A link goes, not what it leads to.
void remove_tree(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status))
    return;
  if (std::filesystem::is_directory(status)) {
    std::vector<Path> files;
    std::filesystem::directory_iterator next(path, error);
    for (; !error && next != std::filesystem::directory_iterator(); next.increment(error))
      if (is_checkpoint_file(next->path().filename().string()) && !next->is_directory(error))
        files.push_back(next->path());
    for (auto file = files.begin(); !error && file != files.end(); ++file)
      std::filesystem::remove(*file, error);
  }
  if (!error)
    std::filesystem::remove(path, error);
  if (error && error != std::errc::directory_not_empty)
    throw_write_error("cannot remove a directory", path, error.value());
}

// The kernel or the file system cannot exchange two names.
bool cannot_exchange(int error_number) { return error_number == EINVAL || error_number == ENOSYS; }

// The directories (and links) beside `path` that an earlier save of this owner has left.
std::vector<Path> leftovers_beside(const Path& path, const std::string& owner, bool replaced) {
  std::vector<Path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    const auto name = parse_partial_name(entry.path().filename().string());
    if (name && name->owner == owner && name->replaced == replaced &&
        are_of_one_kind(without_owner(name->original), without_owner(path.filename().native())) &&
        !std::filesystem::is_regular_file(entry.symlink_status(error)))
      found.push_back(entry.path());
  }
  return found;
}

}  // namespace

std::string new_owner() {
  std::random_device random;
  const auto word = [&] { return static_cast<std::uint32_t>(random()); };
  return fmt::format("{:08x}{:08x}", word(), word());
}

bool is_owner(const std::string& text) {
  return text.size() == owner_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string without_owner(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot != std::string::npos && is_owner(name.substr(dot + 1)) ? name.substr(0, dot) : name;
}

Path partial_path(const Path& path, const std::string& owner) {
  const bool has_owner = owner.empty() || path.extension() == "." + owner;
  return Path(path) += (has_owner ? "" : "." + owner) + partial_suffix;
}

std::optional<PartialName> parse_partial_name(const std::string& name) {
  PartialName parsed;
  parsed.replaced = name.ends_with(replaced_suffix);
  const std::string_view suffix = parsed.replaced ? replaced_suffix : partial_suffix;
  if (!name.ends_with(suffix))
    return std::nullopt;
  parsed.original = name.substr(0, name.size() - suffix.size());
  const std::size_t dot = parsed.original.rfind('.');
  if (dot != std::string::npos && is_owner(parsed.original.substr(dot + 1))) {
    parsed.owner = parsed.original.substr(dot + 1);
    parsed.original.resize(dot);
  }
  return parsed;
}

Path replaced_original(const Path& path) {
  const auto name = parse_partial_name(path.filename().string());
  if (!name || !name->replaced)
    return {};
  std::error_code error;
  Path original = path.parent_path() / name->original;
  return std::filesystem::exists(std::filesystem::symlink_status(original, error)) ? Path() : original;
}

Path begin_directory(const Path& path, const std::string& owner) {
  std::error_code error;
  if (owner.empty())
    make_directories(path.parent_path());
  else if (std::filesystem::create_directory(path.parent_path(), error); error)  // a run that was moved is missed
    throw_write_error("cannot create a directory", path.parent_path(), error.value());
  for (const Path& replaced : leftovers_beside(path, owner, true)) {
    const Path original = replaced_original(replaced);
    if (original.empty())
      remove_tree(replaced);
    else if (::rename(replaced.c_str(), original.c_str()) != 0)
      throw_write_error("cannot restore a directory whose replacement was killed", original, errno);
  }
  for (const Path& leftover : leftovers_beside(path, owner, false))
    remove_tree(leftover);
  Path partial = partial_path(path, owner);
  if (std::filesystem::exists(std::filesystem::symlink_status(partial, error)))
    set_aside(partial);  // it holds what is not ours
  if (!std::filesystem::create_directory(partial, error))
    throw_write_error("cannot create a directory", partial, error ? error.value() : EEXIST);
  return partial;
}

void publish_directory(const Path& path, const std::string& owner, bool may_replace) {
  const Path partial = partial_path(path, owner);
  sync_directory(partial);
  const auto stands_there = [&] {
    std::error_code error;
    return std::filesystem::exists(std::filesystem::symlink_status(path, error));
  };
  if (!may_replace && stands_there())
    set_aside(path);
  if (!stands_there()) {
    if (::rename(partial.c_str(), path.c_str()) != 0)
      throw_write_error("cannot publish a directory", path, errno);
    sync_directory(path.parent_path());
  } else if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(path.parent_path());
    remove_tree(partial);  // which now is the old one
  } else if (cannot_exchange(errno)) {
    impl::replace_by_two_renames(path, owner);
  } else {
    throw_write_error("cannot publish a directory", path, errno);
  }
}

void impl::replace_by_two_renames(const Path& path, const std::string& owner) {
  const Path partial = partial_path(path, owner);
  const Path replaced = Path(path) += (owner.empty() ? "" : "." + owner) + replaced_suffix;
  remove_tree(replaced);
  if (::rename(path.c_str(), replaced.c_str()) != 0 || ::rename(partial.c_str(), path.c_str()) != 0)
    throw_write_error("cannot publish a directory", path, errno);
  sync_directory(path.parent_path());
  remove_tree(replaced);
}

bool holds_only_checkpoint(const Path& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (!is_checkpoint_file(entry.path().filename().string()))
      return false;
  return !error;
}

void remove_directory(const Path& path, const std::string& owner) {
  const Path partial = partial_path(path, owner);
  remove_tree(partial);
  if (::rename(path.c_str(), partial.c_str()) != 0)
    throw_write_error("cannot remove a directory", path, errno);
  sync_directory(path.parent_path());
  remove_tree(partial);
}

void remove_partial_directory(const Path& path, const std::string& owner) { remove_tree(partial_path(path, owner)); }

}  // namespace espalier
