// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "parallel/observe/position.hpp"

namespace espalier {

/// The positions that the ranks of a run have in RUN/state, by rank; those of another version are left out.
std::vector<Position> run_positions(const Path& run_directory);

/// Which rank is where, from the positions kept in the run directory; empty where there are none.
/// @param ended the job is over: times count from the last sign of life
std::string positions_in(const Path& run_directory, bool ended);

}  // namespace espalier
