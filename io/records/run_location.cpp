// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_location.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "core/error.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {
namespace {

constexpr std::array directories_of_systems = {"/",    "/bin", "/boot", "/dev",  "/dev/shm", "/etc",  "/home",
                                               "/lib", "/opt", "/proc", "/root", "/run",     "/sbin", "/srv",
                                               "/sys", "/tmp", "/usr",  "/var",  "/var/tmp"};

// The path that it leads to may be one of another machine, or be gone.
void require_link_to_directory(const Path& link) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(link, ignored)) ||
      std::filesystem::is_directory(link, ignored))
    return;
  const std::string target = std::filesystem::read_symlink(link, ignored).string();
  throw Error(ExitCode::usage, {.what = "the link to the checkpoints does not lead to a directory",
                                .where = link.string(),
                                .got = "a link to " + target,
                                .wanted = "a link to a directory",
                                .todo = fmt::format("make the directory (mkdir -p {}), or remove the link", target)});
}

// These files, and those in these directories, are written, removed and replaced by their names. Where a link leads,
// they may be somebody else's.
void require_no_links(const Path& run) {
  std::vector<std::string> names(RunFolder::own.begin(), RunFolder::own.end());
  names.insert(names.end(), RunFile::all.begin(), RunFile::all.end());
  for (const std::string& name : names)
    require_no_link(run / name);
}

// Where record and id are lost, the checkpoints still show the run. An empty directory with this name may be the
// user's, and what a link leads to may be another run's.
bool has_checkpoints_of_its_own(const Path& run) {
  std::error_code ignored;
  return std::filesystem::is_directory(std::filesystem::symlink_status(run / RunFolder::checkpoints, ignored)) &&
         !find_checkpoints(run / RunFolder::checkpoints).empty();
}

void require_no_foreign_files(const Path& run) {
  std::error_code ignored;
  std::vector<Path> paths;
  for (const char* const name : RunFile::all)
    paths.push_back(run / name);
  for (const char* const name : RunFolder::own)
    if (!std::filesystem::is_directory(run / name, ignored) || !std::filesystem::is_empty(run / name, ignored))
      paths.push_back(run / name);
  for (const Path& path : paths)
    if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
      throw Error(ExitCode::usage, {.what = "a file that Espalier did not write is where the run would write",
                                    .where = path.string(),
                                    .got = "a directory without the run.json and checkpoints/ of a run",
                                    .wanted = "a new or empty directory, or that of a run",
                                    .todo = "give the file another name, or set run.directory to another directory"});
}

}  // namespace

// A run writes a dozen files. In these directories they would mix with unrelated ones.
void require_allowed_location(const Path& run) {
  const char* const home = std::getenv("HOME");
  std::error_code ignored;
  const bool is_for_others =
      std::ranges::any_of(directories_of_systems,
                          [&](const char* name) { return std::filesystem::equivalent(run, name, ignored); }) ||
      (home != nullptr && std::filesystem::equivalent(run, home, ignored));
  if (is_for_others)
    throw Error(ExitCode::usage, {.what = "this directory cannot be a run directory",
                                  .where = run.string(),
                                  .got = "a directory of the system, or your home",
                                  .wanted = "a directory of its own",
                                  .todo = "set run.directory to a directory in it, such as ~/runs/first"});
}

void require_no_link(const Path& path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored)))
    throw Error(ExitCode::usage, {.what = "a file or directory of the run is a link",
                                  .where = path.string(),
                                  .got = "a link to " + std::filesystem::read_symlink(path, ignored).string(),
                                  .wanted = "a real file or directory; only checkpoints may be a link",
                                  .todo = "remove the link, or set run.directory to a place with more space"});
}

void require_only_files_of_a_run(const Path& run, bool is_known) {
  require_no_links(run);
  require_link_to_directory(run / RunFolder::checkpoints);
  if (!is_known && !has_checkpoints_of_its_own(run))
    require_no_foreign_files(run);
}

void require_writable_directories(const Path& run, const std::string& id) {
  std::error_code ignored;
  std::vector<std::string> names(RunFolder::own.begin(), RunFolder::own.end());
  names.emplace_back(RunFolder::checkpoints);
  for (const std::string& name : names) {
    const Path path = run / name;
    if (!std::filesystem::is_directory(path, ignored))
      continue;
    const Path probe = path / ("." + id + ".partial");
    std::error_code error;
    std::filesystem::create_directory(probe, error);
    if (error)
      throw_write_error("a directory of the run cannot be written", path, error.value());
    std::filesystem::remove(probe, ignored);
  }
}

}  // namespace espalier
