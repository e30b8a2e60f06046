// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// The peak learning rate that models of this size are trained with: on the line through GPT-3's, from 6e-4 for 125
/// million parameters to 0.6e-4 for 175 billion. Right within a factor of three.
double usual_learning_rate(const ModelConfig& shape);

/// Steps of warm-up that a run of this length is usually given: a twentieth, from 10 to 2,000; at most half of a
/// shorter run.
Index usual_warmup_steps(const RecordedRun& run);

/// Adds to a finding of a loss that went astray at `step` what in config and curves explains it, strongest first: the
/// rate against the usual one, no warm-up, no clipping, moments or decay out of the usual. Where nothing stands out a
/// lower rate is proposed.
void add_causes_of_instability(const RecordedRun& run, Index step, Finding& finding);

/// The same of a loss that does not move: a rate far too low or over early, updates that clipping, eps or decay take
/// away, tokens in which there is nothing to learn.
void add_causes_of_standstill(const RecordedRun& run, Finding& finding);

/// What makes the next run calmer, where nothing else is known: clipping, else a lower rate, or a longer
/// warm-up where it has less than half of the run.
Change calmer(const RecordedRun& run);

}  // namespace espalier
