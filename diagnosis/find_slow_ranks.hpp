// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// Appends a finding for each rank that computes longer than the others that do the same work.
void find_slow_ranks(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

/// The same steps with every slow rank as fast as the others that do the same work: those of its stage, or where it has
/// that alone all others, each by the work of its stage.
StepProfile without_slow_ranks(const StepProfile& profile);

}  // namespace espalier
