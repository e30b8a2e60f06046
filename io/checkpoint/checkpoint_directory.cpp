// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/set_aside.hpp"
#include "io/input_limits.hpp"
#include "io/records/run_directory.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// The step in "step-00000100", also with the owner, and what stands behind it while it is written, removed or replaced.
std::optional<Index> parse_step(const std::string& name) {
  const auto partial = parse_partial_name(name);
  const std::string plain = without_owner(partial ? partial->original : name);
  return step_in(plain);
}

std::string first_line(const ErrorReport& report) {
  std::string line = report.what + ": " + report.where;
  if (!report.got.empty())
    line += ", got " + report.got;
  if (!report.wanted.empty())
    line += ", wanted " + report.wanted;
  return line;
}

// The names in a directory that may not be there. One that is there and cannot be listed is not an empty one: a run
// would start over.
std::vector<Path> list_directory(const Path& directory) {
  std::vector<Path> paths;
  std::error_code error;
  std::filesystem::directory_iterator next(directory, error);
  if (error == std::errc::no_such_file_or_directory)
    return paths;
  for (; !error && next != std::filesystem::directory_iterator(); next.increment(error))
    paths.push_back(next->path());
  if (error)
    throw Error(ExitCode::checkpoint, {.what = "cannot list the checkpoints",
                                       .where = directory.string(),
                                       .got = system_message(error.value()),
                                       .wanted = "a directory that can be read",
                                       .todo = "check its permissions and its file system"});
  return paths;
}

// Of a checkpoint whose other files are damaged.
std::string owner_in_manifest(const Path& path) {
  const Path manifest = path / manifest_name;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(manifest, ignored)))
    return {};
  try {
    return parse_manifest(read_file(manifest, ExitCode::checkpoint, LargestFile::manifest), manifest).info.owner;
  } catch (const Error&) {
    return {};
  }
}

CheckpointEntry judge(const Path& path, Index step) {
  CheckpointEntry entry{.path = path, .step = step};
  if (path.extension() == partial_suffix && replaced_original(path).empty()) {
    entry.unfinished = true;
    entry.owner = parse_partial_name(path.filename().string())->owner;
    entry.reason = "its save was not finished";
    return entry;
  }
  try {
    const CheckpointReader reader(path);
    entry.complete = reader.info().step == step;
    entry.owner = reader.info().owner;
    if (!entry.complete)
      entry.reason = "its manifest is of step " + std::to_string(reader.info().step);
  } catch (const Error& problem) {
    entry.reason = first_line(problem.report());
    entry.owner = owner_in_manifest(path);
  }
  return entry;
}

// By name alone, the newest first: to judge one is to read its manifest and to ask for all its files.
std::vector<std::pair<Path, Index>> named_checkpoints(const Path& directory) {
  std::vector<std::pair<Path, Index>> named;
  for (const Path& path : list_directory(directory))
    if (const auto step = parse_step(path.filename().string()))
      named.emplace_back(path, *step);
  std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return named;
}

}  // namespace

bool may_be_of_another(const CheckpointEntry& entry, const std::string& owner) {
  if (!entry.owner.empty())
    return entry.owner != owner;
  std::error_code ignored;
  return !entry.complete && std::filesystem::is_symlink(entry.path.parent_path(), ignored);
}

Path place_for_checkpoint(const Path& directory, Index step, const std::string& owner) {
  Path path = checkpoint_path(directory, step);
  std::error_code ignored;
  if (!owner.empty() && std::filesystem::exists(std::filesystem::symlink_status(path, ignored)) &&
      may_be_of_another(judge(path, step), owner))
    path += "." + owner;
  return path;
}

std::vector<CheckpointEntry> find_checkpoints(const Path& directory) {
  std::vector<CheckpointEntry> entries;
  for (const auto& [path, step] : named_checkpoints(directory))
    entries.push_back(judge(path, step));
  return entries;
}

std::vector<CheckpointEntry> checkpoints_of_run(const Path& run, Index& of_others) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(run, ignored))
    return {};
  const std::optional<RunRecord> record = read_run_record(run);
  const std::string owner = record ? record->id : std::string();
  std::vector<CheckpointEntry> entries = find_checkpoints(run / RunFolder::checkpoints);
  of_others = owner.empty() ? 0 : std::erase_if(entries, [&](const CheckpointEntry& entry) {
    return may_be_of_another(entry, owner);
  });
  return entries;
}

DirectoryKind kind_of_directory(const Path& directory) {
  std::error_code missing;
  const auto has = [&](const char* name) { return std::filesystem::exists(directory / name, missing); };
  if (has(RunFolder::checkpoints))
    return DirectoryKind::run;
  if (has(manifest_name))
    return DirectoryKind::checkpoint;
  if (has(RunFile::config) || has(RunFile::record))
    return DirectoryKind::run;
  return has(hugging_face_config_name) ? DirectoryKind::hugging_face : DirectoryKind::other;
}

std::vector<Path> complete_checkpoints(const Path& given, const std::function<void(const std::string&)>& note) {
  std::error_code ignored;
  const DirectoryKind kind = kind_of_directory(given);
  // Without its manifest the name still says that it was meant to be a checkpoint: the reader names what is missing.
  const bool is_named_so = std::filesystem::is_directory(given, ignored) &&
                           parse_step((given / "").parent_path().filename().string()).has_value();
  if (kind == DirectoryKind::checkpoint || (kind != DirectoryKind::run && is_named_so))
    return {given};
  std::vector<Path> complete;
  std::vector<CheckpointEntry> incomplete;
  Index of_others = 0;
  for (const CheckpointEntry& entry : checkpoints_of_run(given, of_others))
    if (entry.complete)
      complete.push_back(entry.path);
    else if (complete.empty())
      incomplete.push_back(entry);
  for (const CheckpointEntry& newer : incomplete)
    if (note && !complete.empty())
      note("passing over " + newer.path.string() + ": " + newer.reason);
  if (!complete.empty())
    return complete;
  if (kind == DirectoryKind::hugging_face)
    throw Error(ExitCode::checkpoint,
                {.what = "this is a Hugging Face model, but a checkpoint is needed",
                 .where = given.string(),
                 .todo = fmt::format("make one from it: espalier checkpoint import {} --output NEW", given.string())});
  std::string reasons;
  for (const CheckpointEntry& entry : incomplete)
    reasons += "\n  " + entry.path.filename().string() + ": " + entry.reason;
  if (of_others > 0)
    reasons += "\n  " + counted(of_others, "checkpoint") + " of other runs";
  throw Error(ExitCode::checkpoint,
              {.what = "no complete checkpoint here" + reasons,
               .where = given.string(),
               .wanted = "a run directory, or one of its checkpoints/step-XXXXXXXX",
               .todo = incomplete.empty() ? "give the directory of a run that has saved one"
                                          : "restore the damaged files from a copy, or give another run"});
}

Path resolve_checkpoint(const Path& given, const std::function<void(const std::string&)>& note) {
  return complete_checkpoints(given, note).front();
}

void use_newest(const std::vector<Path>& checkpoints, const std::function<void(const std::string&)>& note,
                const std::function<void(const Path&)>& use) {
  for (const Path& path : checkpoints) {
    try {
      return use(path);
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint || path == checkpoints.back())
        throw;
      note(std::string("passing over ") + path.string() + ": " + error.what());
    }
  }
}

bool is_checkpoint_of(const Path& path, Index step, const std::string& owner) {
  const CheckpointEntry entry = judge(path, step);
  return entry.complete && entry.owner == owner && holds_only_checkpoint(path);
}

void prune_checkpoints(const Path& directory, KeptCheckpoints kept, Index newest, const std::string& owner) {
  ESPALIER_ASSERT(kept.last >= 1, "the newest checkpoint is always kept, got " + std::to_string(kept.last));
  Index complete = 0;
  for (const auto& [path, step] : named_checkpoints(directory)) {
    if (step > newest)
      continue;
    const bool for_ever = kept.every > 0 && step % kept.every == 0;
    if (complete < kept.last)
      complete += is_checkpoint_of(path, step, owner) ? 1 : 0;
    else if (!for_ever && is_checkpoint_of(path, step, owner))
      remove_directory(path, owner);
  }
}

std::vector<Path> set_aside_checkpoints_after(const Path& directory, Index step, const std::string& owner) {
  std::vector<Path> moved;
  for (const CheckpointEntry& entry : find_checkpoints(directory)) {
    if (entry.step <= step || may_be_of_another(entry, owner) ||
        (entry.path.extension() == partial_suffix && !entry.complete))
      continue;
    moved.push_back(set_aside(entry.path));
  }
  if (!moved.empty())
    sync_directory(directory);
  return moved;
}

}  // namespace espalier
