// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// What one list must hold by itself, whatever made it: every chunk of every micro-batch forward once and backward once
/// (as a whole or as its two parts), in that order; backwards of a chunk in the order of the micro-batches; every
/// boundary's message once, received before it is needed and sent after it is made, with the right peer; one reduce a
/// chunk after its last gradient, `reduces` there and nowhere else; tied_reduce on the first and the last stage; one
/// optimizer after all reductions, gather_weights after it. Appends a sentence for each problem; all begin with `who`.
void check_list(const PipelineSchedule& list, const PipelineShape& shape, int stage, const std::string& who,
                std::vector<std::string>& problems);

}  // namespace espalier
