// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// Why a run ended before its last step, hangs, or cannot be heard any more: who, where, who waited for whom. None for
/// one that completed, was stopped on request, or trains.
std::vector<Finding> find_end(const RecordedRun& run);

}  // namespace espalier
