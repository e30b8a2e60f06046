// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/price_layout.hpp"
#include "training/rehearsal/rehearsal.hpp"

namespace espalier {

/// Of `espalier plan --rehearse`.
struct RehearseOptions {
  std::string directory;  ///< empty: nothing is rehearsed
  std::string mpiexec;    ///< command and options
  double seconds = 60;    ///< of the steps of one rehearsal
};

/// The launcher of the MPI that this program was built with.
std::string default_mpiexec();

struct RehearsedLayout {
  LayoutPrice price;    ///< of the whole step
  Rehearsal rehearsal;  ///< of some of its micro-batches
  RehearsedStep step;

  /// Of all micro-batches: off by the same share.
  double whole_step_seconds() const { return price.step_seconds * (1 + step.error_share()); }
};

/// @throws Error (usage) for a layout of more than 64 ranks, or one that train cannot run.
void require_rehearsable(const Layout& layout);

/// Runs `train` on as many ranks as the layout has, in `directory`, and reads what it measured. Config, tokens, log and
/// the run itself stay there in the place of those of an earlier rehearsal; other files are left alone.
/// @throws Error (usage) for a layout that is not rehearsable, where the directory is somebody else's, and where the
/// ranks cannot be started; with the exit code of the run when that fails. Both quote the end of the log.
RehearsedLayout rehearse(const PlanProblem& problem, const LayoutPrice& price, const RehearseOptions& options);

/// Rehearsed beside predicted, by phase.
std::string rehearsal_text(const RehearsedLayout& layout, const RehearseOptions& options);

/// Of several, the efficiency as well: sequences per second and device against the first.
std::string rehearsed_scaling_text(const std::vector<RehearsedLayout>& layouts);

/// The same for programs.
std::string rehearsals_json(const std::vector<RehearsedLayout>& layouts);

}  // namespace espalier
