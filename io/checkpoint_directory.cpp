// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>

#include "io/atomic_directory.hpp"
#include "io/checkpoint.hpp"

namespace espalier {
namespace {

// The step in "step-00000100" or "step-00000100.partial".
std::optional<Index> parse_step(const std::string& name) {
  if (!name.starts_with("step-") || name.size() < 13)
    return std::nullopt;
  Index step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 5, end, step);
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  return error == std::errc() && (suffix.empty() || suffix == partial_suffix) ? std::optional(step) : std::nullopt;
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
    if (found.path().extension() == partial_suffix) {
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

void prune_checkpoints(const Path& directory, Index keep_last) {
  ESPALIER_ASSERT(keep_last >= 1, "the newest checkpoint is always kept");
  Index complete = 0;
  for (const CheckpointEntry& entry : find_checkpoints(directory))
    if (entry.complete && ++complete > keep_last)
      remove_directory(entry.path);
}

}  // namespace espalier
