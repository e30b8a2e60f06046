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
/// spread is 1.4826 times their median absolute deviation, at least 1 % of the median: z > 6 is one, as long as it is
/// `least_rise` times the median. The first eight values are taken as they are. Pure.
std::vector<Spike> find_spikes(const std::vector<Index>& steps, const std::vector<double>& values, double least_rise);

/// What endangers the training: losses that are no numbers, that rise or never fall, spikes of loss and gradient norm,
/// skipped steps, a loss scale that has collapsed, validation that stands far above training, a rate that never came
/// up.
std::vector<Finding> find_instability(const RecordedRun& run);

}  // namespace espalier
