// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// Steps whose values stand far above those of the steps before.
struct Spike {
  Index first_step = 0;
  Index last_step = 0;
  double value = 0;            ///< the highest
  double before = 0;           ///< median of the steps before
  std::size_t num_before = 0;  ///< how many those are
  double z = 0;                ///< (value - before) over the standard deviation of the steps before
};

/// The spikes of a series by step. A value is compared with the median of up to 32 before it that are no spikes, its
/// standard deviation is 1.4826 times their median absolute deviation, at least 1 % of the median: z > 6 is one, as
/// long as it is `min_rise` times the median. The first eight values are taken as they are. Pure.
std::vector<Spike> find_spikes(const std::vector<Index>& steps, const std::vector<double>& values, double min_rise);

/// What endangers the training: losses that are no numbers, that rise or never fall, spikes of loss and gradient norm,
/// skipped steps, a loss scale that has collapsed, validation that stands far above training, a rate that never came
/// up.
std::vector<Finding> find_instability(const RecordedRun& run);

/// A training that went astray, or that does not learn: a loss that ends above its first, rose above that of guessing,
/// rises again, never falls, or stands where token frequencies alone lead. One finding at most, with what explains it.
void find_divergence(const RecordedRun& run, std::vector<Finding>& findings);

/// Validation that rises while training goes on falling, or that stands far above it, with how often the text was read.
void find_overfitting(const RecordedRun& run, std::vector<Finding>& findings);

/// A run that has ended inside its warm-up.
void find_unfinished_warmup(const RecordedRun& run, std::vector<Finding>& findings);

/// The losses of a run that are finite, and what they are to be measured by.
struct LossCourse {
  std::vector<Index> steps;
  std::vector<double> losses;
  double guessing = 0;     ///< of a model that knows nothing: ln(vocabulary)
  double frequencies = 0;  ///< of one that knows how often each token occurs, and nothing else; 0: not noted
  double noise = 0;        ///< how far a loss scatters about those beside it

  std::size_t size() const { return losses.size(); }
  double first_median(std::size_t count) const;
  double last_median(std::size_t count) const;
  /// How far a median of so many losses may lie from another by chance: four times its error.
  double chance(std::size_t count) const;
};

LossCourse loss_course(const RecordedRun& run);

/// Losses enough for a median that says where a run stands: a tenth of them, three at least.
std::size_t end_window(const LossCourse& course);

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
