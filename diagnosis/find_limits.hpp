// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// What the layout costs as it was chosen: uneven stages, the bubble, what of gradient reduction and tensor
/// collectives is exposed, the optimizer, the rest. Slow ranks are taken out of the measured times before.
std::vector<Finding> find_limits(const RecordedRun& run, const StepProfile& profile);

/// The longest exchange of any group along `axis`, without what slow links cost: they are findings of their own.
double exposed_seconds(const RecordedRun& run, const StepProfile& profile, Axis axis, Phase phase);

/// "predicted: 0.2 s", of the stage that most of it is predicted for; empty without a prediction.
std::vector<std::string> prediction_evidence(const RecordedRun& run, Phase phase);

}  // namespace espalier
