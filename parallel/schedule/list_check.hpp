// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Checks one list by itself:
/// - every chunk of every micro-batch has one forward, and then one backward (as a whole or as its two parts)
/// - backwards of a chunk come in the order of the micro-batches
/// - every message is received before it is needed and sent after it is made, once, with the right peer
/// - each chunk has one reduce after its last gradient, with `reduces` there only
/// - tied_reduce is on the first and the last stage; one optimizer follows all reductions, then gather_weights
///
/// Appends a sentence for each problem; all begin with `who`.
void check_list(const PipelineSchedule& list, const PipelineShape& shape, int stage, const std::string& who,
                std::vector<std::string>& problems);

}  // namespace espalier
