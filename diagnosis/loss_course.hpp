// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnosis/recorded_run.hpp"

namespace espalier {

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

}  // namespace espalier
