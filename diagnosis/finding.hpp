// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier {

/// What can be wrong with a run. The words of `diagnose --json` and of docs/diagnose.md.
enum class Cause {
  died,                ///< did not exit cleanly
  silent,              ///< no sign of life, on a host that cannot be seen from here
  failed,              ///< ended with an error
  hangs,               ///< alive, but nobody moves
  slow_rank,           ///< computes slower than the others do the same work
  slow_link,           ///< its messages are longer on their way than those of other links
  data_stall,          ///< steps wait for tokens
  checkpoint_stall,    ///< training waits for saves
  slow_compute,        ///< all ranks compute slower than predicted
  crowded_cores,       ///< more threads than cores
  precision,           ///< wider numbers than training needs
  uneven_stages,       ///< one stage has more to do
  bubble,              ///< too few micro-batches for the stages
  stage_messages,      ///< those that do not overlap
  gradient_reduction,  ///< its part that does not overlap
  tensor_across_nodes,
  tensor_exchange,  ///< tensor parallelism inside nodes
  optimizer,
  overhead,        ///< outside of all phases
  not_finite,      ///< a loss that is no number
  divergence,      ///< a loss that rises above its first, that of guessing or its lowest, or never falls
  plateau,         ///< a loss that stands where token frequencies alone lead
  loss_spike,      ///< for a few steps far above those before
  gradient_spike,  ///< the same of the gradient's norm
  loss_scale_collapse,
  skipped_steps,
  overfitting,     ///< validation far above training
  learning_rate,   ///< that never came to its peak
  effective_batch  ///< changed, and with it what the learning rate means
};
const char* to_string(Cause cause);

/// The parts of a diagnosis, in the order in which they are printed.
enum class Concern { end, time, stability };
const char* to_string(Concern concern);
Concern concern_of(Cause cause);

/// Something to do about a finding.
struct Change {
  std::string setting;            ///< in config terms where there are any: "batch.micro_batch_size = 1"
  double gain_seconds = 0;        ///< of a step; of one with as many tokens where the batch changes
  std::string estimated_by = {};  ///< how the gain was worked out; empty: it was not
  bool grows_batch = false;       ///< a step has more sequences: other steps, another learning rate
};

struct Finding {
  Cause cause = Cause::overhead;
  std::string title;            ///< one sentence, with its size
  double seconds = 0;           ///< of a step that it costs
  double share = 0;             ///< of the step
  double size = 0;              ///< of the fault itself, in `unit`
  std::string unit = {};        ///< "times as long", "s a message", "share idle"
  bool is_fault = false;        ///< not as planned, unlike what the layout costs anyway
  double risk = 0;              ///< of stability: 0 to 1
  std::string verdict = {};     ///< of one that spoils the whole run, in a word or two: "diverged"
  std::vector<int> ranks = {};  ///< those that cause it, where some do
  std::vector<std::string> evidence = {};
  std::vector<Change> changes = {};  ///< best first
};

}  // namespace espalier
