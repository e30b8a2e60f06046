// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// What takes time though nothing planned it: a slow rank, a slow link between stages, stalls of data and saves, all
/// ranks slower than predicted.
std::vector<Finding> find_faults(const RecordedRun& run, const StepProfile& profile);

/// Whether messages between two stages take longer than those over the other links of the same kind: inside a node, or
/// between nodes.
bool has_slow_stage_link(const RecordedRun& run, const StepProfile& profile);

/// Seconds that the ranks of a group along `axis` spend on an exchange, and not on waiting: the least of `phase` of
/// any, since who came last waited for nobody.
double least_of_group(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis, Phase phase);

/// Of them, those that a link costs which the start found slow; `axis` joins replicas or tensor ranks.
double seconds_of_slow_links(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis);

}  // namespace espalier
