// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// Validation that rises while training goes on falling, or that stands far above it, with how often the text was read.
void find_overfitting(const RecordedRun& run, std::vector<Finding>& findings);

/// A run that has ended inside its warm-up.
void find_unfinished_warmup(const RecordedRun& run, std::vector<Finding>& findings);

}  // namespace espalier
