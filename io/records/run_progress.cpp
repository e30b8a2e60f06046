// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "io/records/progress_file.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {

namespace {

template <std::size_t N>
bool ends(const std::array<char, N>& text) {
  return std::ranges::find(text, '\0') != text.end();
}

bool is_time(double seconds) { return seconds >= 0 && seconds < 1e12; }  // of the system clock; false for NaN

// Whose texts end, and whose numbers are what a rank writes. A file of it is a few bytes that anything may have
// happened to.
bool is_sound(const RankProgress& progress, int rank) {
  return progress.magic == RankProgress::magic_number && progress.version == RankProgress::current_version &&
         progress.rank == rank && rank < progress.world_size && progress.step >= -1 && progress.num_peers >= 0 &&
         is_time(progress.since) && is_time(progress.alive) && ends(progress.host) && ends(progress.operation) &&
         ends(progress.waits_for) && ends(progress.communicator);
}

}  // namespace

std::vector<RankProgress> run_progress(const Path& run_directory) {
  std::vector<RankProgress> found;
  for (const StoredProgress& stored : read_progress_files(run_directory / RunFolder::state))
    if (const auto progress = stored.as<RankProgress>(); progress && is_sound(*progress, stored.rank))
      found.push_back(*progress);
  return found;
}

std::string progress_in(const Path& run_directory, bool ended) {
  const std::vector<RankProgress> found = run_progress(run_directory);
  if (found.empty())
    return {};
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return progress_report(found, ended ? 0 : now);
}

}  // namespace espalier
