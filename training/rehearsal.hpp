// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/phases.hpp"
#include "planning/price_layout.hpp"
#include "training/run_config.hpp"

// A plan executed before its cluster exists: `train` runs the layout with its lists and communicators on as many ranks,
// a tiny model in the place of the planned one, and [emulate] makes operations and messages last as they are priced.

namespace espalier {

struct Rehearsal {
  RunConfig config = {};
  int num_ranks = 1;
  double time_scale = 1;     ///< seconds of the rehearsal for one second of the cluster
  Index num_blocks = 0;      ///< of the tiny model
  Index planned_blocks = 0;  ///< of the planned one
};

/// Why this layout cannot be run by `train`, whatever the model; empty when it can.
std::string why_not_rehearsable(const PlanLayout& layout);

/// @param token_file a file of rehearsal_tokens(), which need not exist yet
/// @param directory of the run
/// @param seconds that its steps take together
/// @param cores that its ranks share: on few of them the tiny model has fewer blocks than the planned one
/// @pre why_not_rehearsable() is empty. @throws Error (usage) where the config would be refused.
Rehearsal make_rehearsal(const PlanProblem& problem, const LayoutPrice& price, const std::string& token_file,
                         const std::string& directory, double seconds, int cores);

/// Writes the tokens that it trains on.
void write_rehearsal_tokens(const Rehearsal& rehearsal, const Path& token_file);

/// What it came to, in seconds of the cluster.
struct RehearsedStep {
  double predicted_seconds = 0;
  double rehearsed_seconds = 0;
  Index num_steps = 0;
  int stage = 0;                ///< the busiest, whose phases follow
  PhaseSeconds predicted = {};  ///< what is neither pass nor message counts as optimizer
  PhaseSeconds rehearsed = {};
  double error_share() const { return rehearsed_seconds / predicted_seconds - 1; }
};

/// @param details of its run.json. @throws Error (data) when no step was measured.
RehearsedStep rehearsed_step(const Rehearsal& rehearsal, const LayoutPrice& price, const nlohmann::json& details);

}  // namespace espalier
