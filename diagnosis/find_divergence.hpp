// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// A training that went astray, or that does not learn: a loss that ends above its first, rose above that of guessing,
/// rises again, never falls, or stands where token frequencies alone lead. One finding at most, with what explains it.
void find_divergence(const RecordedRun& run, std::vector<Finding>& findings);

}  // namespace espalier
