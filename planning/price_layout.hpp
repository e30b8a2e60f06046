// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_ledger.hpp"
#include "core/phases.hpp"
#include "models/cost.hpp"
#include "models/layout.hpp"
#include "models/rank_memory.hpp"
#include "planning/cluster.hpp"
#include "planning/implementation.hpp"
#include "planning/interval.hpp"
#include "planning/pipeline_time.hpp"

namespace espalier {

/// What a layout is priced for: a model, the machine and the program that train it.
struct PlanProblem {
  ModelConfig model;
  Cluster cluster;
  Implementation implementation;
  Index sequence_length = 1024;
  std::string model_name = "the model";
  Index num_tokens = 0;  ///< that the whole run trains on; 0: not asked
  /// Bytes of a rank of each stage where another program than `train` is judged: memory_of_stages() asks it.
  std::function<std::vector<MemoryByCategory>(const PlanProblem&, const Layout&)> memory_of = {};
};

/// The layout with the layers of each part of the model: those that it leaves open are given as `train` gives them.
Layout with_layers(const PlanProblem& problem, Layout layout);

/// Bytes of a rank of each stage, by category: what `train --dry-run` says of that layout. @pre why_impossible() is
/// empty (planning/layout_limits.hpp)
std::vector<MemoryByCategory> memory_of_stages(const PlanProblem& problem, const Layout& layout);

/// The most workspace that attention through cuDNN holds on to on a rank; 0 where it does not compute.
std::size_t attention_workspace_on_rank(const PlanProblem& problem, const Layout& layout);

/// Seconds that one micro-batch takes on one chunk: what the operations of the lists are made of.
struct ChunkPrice {
  ChunkSeconds work;                   ///< without collectives; recomputation is in backward_input
  double tensor = 0;                   ///< of collectives on the tensor axis, all passes
  ChunkSeconds with_collectives = {};  ///< both together, pass by pass
};

/// What a step reaches of a device's rate: of the peak that its maker names, or of the GEMM rate that was measured.
/// One of them is known, or both.
struct FlopsShares {
  std::optional<double> gemm_fraction;
  std::optional<double> mfu;

  /// The one that tables show: MFU compares devices.
  double shown() const { return mfu ? *mfu : gemm_fraction.value_or(0); }
  std::string text() const;  ///< "GEMM fraction 61.2 %, MFU 43.0 %"
};
/// @param rate of one device, FLOP/s
FlopsShares flops_shares(const PlanProblem& problem, const MatrixRate& rate, double tokens_per_second, int num_devices);

/// What one step of a layout costs.
struct LayoutPrice {
  Layout layout;
  double step_seconds = 0;
  PhaseSeconds seconds = {};                         ///< of the busiest stage; they add up to step_seconds
  double recompute_seconds = 0;                      ///< of its backward, what recomputation takes
  std::vector<PhaseSeconds> stages = {};             ///< of each stage; each adds up to step_seconds
  std::vector<std::vector<ChunkPrice>> chunks = {};  ///< [stage][chunk]
  double message_seconds = 0;                        ///< of one message between stages
  /// Of reducing gradients, those of a token embedding that the first and the last stage share among them, and of
  /// gathering weights; overlapped or not.
  double reduction_seconds = 0;
  double tied_seconds = 0;    ///< of them, those of that embedding, overlapped by nothing
  double gather_seconds = 0;  ///< of them, those of weights that ZeRO-1 and 2 updated
  /// The share of the pipeline's window that a stage waits on average: 1 - work of all stages / (stages x window). The
  /// bubble is what the busiest stage waits.
  double idle_share = 0;
  double overlapped_data_seconds = 0;         ///< of reduction and gathering that overlaps with other work
  std::vector<MemoryByCategory> memory = {};  ///< of a rank of each stage
  std::size_t memory_bytes = 0;               ///< of the stage that has most
  int peak_stage = 0;
  double tokens_per_second = 0;
  FlopsShares flops_shares = {};
  double error_share = 0;         ///< of step_seconds, either way
  Interval step_interval = {};    ///< seconds: what step_seconds is in 9 of 10 cases like it
  Interval memory_interval = {};  ///< bytes: the same of memory_bytes

  double operator[](Phase phase) const { return seconds[phase]; }
  double& operator[](Phase phase) { return seconds[phase]; }
};

/// The phase of which value(phase) is greatest, the first of equals.
template <class Value>
Phase phase_with_most(const Value& value) {
  std::size_t most = 0;
  for (std::size_t i = 1; i < num_phases; ++i)
    if (value(static_cast<Phase>(i)) > value(static_cast<Phase>(most)))
      most = i;
  return static_cast<Phase>(most);
}

enum class Effort {
  estimate,  ///< bubbles in closed form
  simulate   ///< the operation lists are run
};

/// Prices a layout. @pre why_impossible() is empty (planning/layout_limits.hpp).
LayoutPrice price_layout(const PlanProblem& problem, const Layout& layout, Effort effort = Effort::simulate);

}  // namespace espalier
