// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "parallel/observe/rank_progress.hpp"

namespace espalier {

/// The progress of the ranks of a run, from RUN/state, by rank; that of another version is left out.
std::vector<RankProgress> run_progress(const Path& run_directory);

/// Which rank is where, from the progress files in the run directory; empty where there are none.
/// @param ended the job is over: times count from the last sign of life
std::string progress_in(const Path& run_directory, bool ended);

}  // namespace espalier
