// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "planning/finding.hpp"
#include "planning/step_profile.hpp"

namespace espalier {

/// What takes time though nothing planned it: a slow rank, a slow link between stages, stalls of data and saves, all
/// ranks slower than predicted.
std::vector<Finding> find_faults(const RecordedRun& run, const StepProfile& profile);

/// The same steps with every slow rank as fast as the others that do the same work: those of its stage, or where it has
/// that alone all others, each by the work of its stage.
StepProfile without_slow_ranks(const StepProfile& profile);

/// Whether messages between two stages take longer than those over the other links of the same kind: inside a node, or
/// between nodes.
bool has_slow_stage_link(const RecordedRun& run, const StepProfile& profile);

}  // namespace espalier
