// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>

#include "io/atomic_directory.hpp"
#include "io/checkpoint.hpp"

namespace espalier {
namespace {

// The step in "step-00000100", "step-00000100.partial" or "step-00000100.replaced.partial".
std::optional<Index> parse_step(const std::string& name) {
  if (!name.starts_with("step-") || name.size() < 13)
    return std::nullopt;
  Index step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 5, end, step);
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  const bool known = suffix.empty() || suffix == partial_suffix || suffix == replaced_suffix;
  return error == std::errc() && known ? std::optional(step) : std::nullopt;
}

std::string first_line(const ErrorReport& report) {
  std::string line = report.what + ": " + report.where;
  if (!report.got.empty())
    line += ", got " + report.got;
  if (!report.wanted.empty())
    line += ", wanted " + report.wanted;
  return line;
}

}  // namespace

std::vector<CheckpointEntry> find_checkpoints(const Path& directory) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  for (const auto& found : std::filesystem::directory_iterator(directory, error)) {
    const auto step = parse_step(found.path().filename().string());
    if (!step)
      continue;
    CheckpointEntry entry{found.path(), *step, false, ""};
    const bool is_partial = found.path().extension() == partial_suffix;
    if (is_partial && replaced_original(found.path()).empty()) {
      entry.reason = "its save was not finished";
    } else {
      try {
        const CheckpointReader reader(found.path());
        entry.complete = reader.info().step == *step;
        if (!entry.complete)
          entry.reason = "its manifest is of step " + std::to_string(reader.info().step);
      } catch (const Error& problem) {
        entry.reason = first_line(problem.report());
      }
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step != b.step ? a.step > b.step : a.path < b.path; });
  return entries;
}

void prune_checkpoints(const Path& directory, Index keep_last, Index newest) {
  ESPALIER_ASSERT(keep_last >= 1, "the newest checkpoint is always kept, got keep_last " + std::to_string(keep_last));
  Index complete = 0;
  for (const CheckpointEntry& entry : find_checkpoints(directory))
    if (entry.complete && entry.step <= newest && ++complete > keep_last)
      remove_directory(entry.path);
}

std::vector<Path> set_aside_checkpoints_after(const Path& directory, Index step) {
  std::vector<Path> moved;
  for (const CheckpointEntry& entry : find_checkpoints(directory)) {
    if (entry.step <= step || (entry.path.extension() == partial_suffix && !entry.complete))
      continue;
    Path aside = Path(entry.path) += ".abandoned";
    for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(aside)); ++i)
      aside = Path(entry.path) += ".abandoned-" + std::to_string(i);
    if (::rename(entry.path.c_str(), aside.c_str()) != 0)
      throw_write_error("cannot set aside a checkpoint", entry.path, errno);
    moved.push_back(aside);
  }
  if (!moved.empty())
    sync_directory(directory);
  return moved;
}

}  // namespace espalier
