// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_positions.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "io/records/position_file.hpp"

namespace espalier {

namespace {

template <std::size_t N>
bool ends(const std::array<char, N>& text) {
  return std::ranges::find(text, '\0') != text.end();
}

bool is_time(double seconds) { return seconds >= 0 && seconds < 1e12; }  // of the system clock; false for NaN

// Whose texts end, and whose numbers are what a rank writes. A file of it is a few bytes that anything may have
// happened to.
bool is_sound(const Position& position, int rank) {
  return position.magic == Position::magic_number && position.version == Position::current_version &&
         position.rank == rank && rank < position.world_size && position.step >= -1 && position.num_peers >= 0 &&
         is_time(position.since) && is_time(position.alive) && ends(position.host) && ends(position.operation) &&
         ends(position.waits_for) && ends(position.communicator);
}

}  // namespace

std::vector<Position> run_positions(const Path& run_directory) {
  std::vector<Position> positions;
  for (const StoredPosition& stored : read_positions(run_directory / "state"))
    if (const auto position = stored.as<Position>(); position && is_sound(*position, stored.rank))
      positions.push_back(*position);
  return positions;
}

std::string positions_in(const Path& run_directory, bool ended) {
  const std::vector<Position> positions = run_positions(run_directory);
  if (positions.empty())
    return {};
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return positions_report(positions, ended ? 0 : now);
}

}  // namespace espalier
