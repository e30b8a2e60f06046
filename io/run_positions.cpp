// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/run_positions.hpp"

#include <chrono>

#include "io/position_file.hpp"

namespace espalier {

std::vector<Position> run_positions(const Path& run_directory) {
  std::vector<Position> positions;
  for (const StoredPosition& stored : read_positions(run_directory / "state"))
    if (const auto position = stored.as<Position>();
        position && position->magic == Position::magic_number && position->version == Position::current_version)
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
