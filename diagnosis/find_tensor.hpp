// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// What the exchanges of tensor ranks cost: across nodes, where they may be moved inside; else of a smaller degree,
/// where the planner says that it has room. Adds a finding where there are such ranks.
void find_tensor(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

}  // namespace espalier
