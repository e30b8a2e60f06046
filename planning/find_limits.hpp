// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "planning/finding.hpp"
#include "planning/step_profile.hpp"

namespace espalier {

/// What the layout costs as it was chosen: uneven stages, the bubble, what of gradient reduction and tensor
/// collectives is exposed, the optimizer, the rest. Slow ranks are taken out of the measured times before.
std::vector<Finding> find_limits(const RecordedRun& run, const StepProfile& profile);

}  // namespace espalier
