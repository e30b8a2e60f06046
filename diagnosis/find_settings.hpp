// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// Choices of whoever started the run that make all of its ranks slow, whatever the layout: more threads than cores,
/// numbers wider than training needs. None where operations are imitated.
void find_settings(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

}  // namespace espalier
