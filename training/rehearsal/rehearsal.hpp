// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/phases.hpp"
#include "planning/price_layout.hpp"
#include "training/config/run_config.hpp"

// A plan executed before its cluster exists: `train` runs the layout with its lists and communicators on as many ranks,
// a tiny model in the place of the planned one, and emulation makes operations and messages last as estimated.

namespace espalier {

struct Rehearsal {
  LayoutPrice price = {};  ///< of the layout that runs, with enough micro-batches to show its pipeline at work
  RunConfig config = {};
  double time_scale = 1;  ///< seconds of the rehearsal for one second of the cluster
  Index planned_microbatches = 0;
  Index planned_blocks = 0;  ///< the tiny model has fewer where cores are few or collectives would be too short

  int num_ranks() const { return price.layout.num_devices(); }
  Index num_blocks() const { return config.model.shape.num_layers; }
};

/// @param token_file of write_rehearsal_tokens(), which need not exist yet
/// @param directory of the run
/// @param seconds that its steps take together
/// @param cores that its ranks share
/// @pre why_not_runnable() of the layout is empty. @throws Error (usage) where the config would be refused.
Rehearsal make_rehearsal(const PlanProblem& problem, const Layout& layout, const std::string& token_file,
                         const std::string& directory, double seconds, int cores);

/// Writes the tokens that it trains on.
void write_rehearsal_tokens(const Rehearsal& rehearsal, const Path& token_file);

/// The measured step of its micro-batches, in seconds of the cluster.
struct RehearsedStep {
  double predicted_seconds = 0;
  double rehearsed_seconds = 0;
  Index num_steps = 0;
  int stage = 0;                ///< the busiest, whose phases follow
  PhaseSeconds predicted = {};  ///< what is neither pass nor message counts as optimizer
  PhaseSeconds rehearsed = {};
  double error_share() const { return rehearsed_seconds / predicted_seconds - 1; }
};

/// @param details of the run.json in its run.directory. @throws Error (data) when no step was measured.
RehearsedStep rehearsed_step(const Rehearsal& rehearsal, const nlohmann::json& details);

}  // namespace espalier
