// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/machine.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Refuses a job whose ranks were launched with unlike configs or programs, which would train nonsense or hang.
/// Collective; meant to come before anything is allocated. `resolved_config` is whatever text must be the same on all
/// ranks, one setting a line.
/// @throws Error (usage) on every rank, naming the ranks that differ from rank 0 and the first line that does.
void require_same_launch(const Communicator& world, const std::string& resolved_config,
                         const std::string& program = executable_hash());

/// Ranks whose text is not that of rank 0, on all ranks. Collective.
std::vector<int> different_ranks(const Communicator& world, const std::string& text);

/// "ranks 1 to 3, 6": a job may have thousands of them.
std::string ranks_text(const std::vector<int>& ranks);

/// The first line in which two texts differ, of each; behind it the TOML section that it stands in.
struct DifferingLines {
  std::string first;
  std::string second;
};
DifferingLines first_differing_lines(const std::string& first, const std::string& second);

}  // namespace espalier
