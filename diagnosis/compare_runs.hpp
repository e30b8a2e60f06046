// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

struct Difference {
  std::string what;  ///< a key of the config, or a fact: "hosts", "program", "micro-batches of a replica"
  std::string before;
  std::string after;
};

/// A run beside an earlier one.
struct Comparison {
  Path against;
  std::vector<Difference> differences;
  double before = 0;  ///< tokens per second and rank, saves included
  double after = 0;
  /// Seconds of a rank for 1000 tokens of its share, by phase: comparable whatever the batch and the ranks.
  PhaseSeconds phases_before;
  PhaseSeconds phases_after;
  std::string explanation;                 ///< why it became slower, or faster, in a sentence; empty: it did not
  std::optional<Cause> explained_by = {};  ///< the finding that costs so much more than before
};

/// What differs: in the model, then in layout, batch, hardware and program, then in the rest of the config.
std::vector<Difference> differences_between(const RecordedRun& before, const RecordedRun& after);

/// @pre both runs have steps.
/// @param findings_before all of that run, also those that are too small to be printed: what costs more now was perhaps
/// not nothing then
/// @param findings_after those that are printed
Comparison compare_runs(const RecordedRun& before, const StepProfile& profile_before,
                        const std::vector<Finding>& findings_before, const RecordedRun& after,
                        const StepProfile& profile_after, const std::vector<Finding>& findings_after);

/// The effective batch, replicas x micro-batches x their size, is another than before: what that means for the
/// learning rate. For Adam the square root of the batch is the rule that theory gives [Malladi et al. 2022]; the
/// linear rule [Goyal et al. 2017] is its upper bound. Between the two the rate is left as it is. None where the batch
/// is the same.
std::vector<Finding> find_effective_batch(const RecordedRun& before, const RecordedRun& after, bool after_spikes);

}  // namespace espalier
