// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/layout_space.hpp"
#include "planning/price_layout.hpp"
#include "planning/why_slower.hpp"

namespace espalier {

inline constexpr double bottleneck_share = 0.02;  ///< of the step, that a phase beyond forward and backward must take

/// What limits a step: forward and backward themselves, recomputation (a part of backward), or another phase.
struct Bottleneck {
  enum class Kind { compute, recompute, phase } kind = Kind::compute;
  Phase phase = Phase::forward;  ///< of Kind::phase
  std::string name() const;      ///< "tensor_comm"; "recompute"; "forward and backward"
  double seconds(const LayoutPrice& price) const;
};

/// What takes most beyond forward and backward; these two where nothing else takes bottleneck_share.
Bottleneck bottleneck(const LayoutPrice& price);
Bottleneck longest_beside_compute(const LayoutPrice& price);

/// `seconds` of a step of `price`, for as many tokens as a step of `now` has.
double comparable_seconds(const LayoutPrice& price, const LayoutPrice& now, double seconds);

/// One change to a layout, priced.
struct Mitigation {
  std::string change;  ///< "micro-batches of 1 instead of 2 (batch.micro_batch_size)", with the key of the config
  LayoutPrice price;
  double gain = 0;        ///< of tokens per second, as a share; may be negative
  double saved = 0;       ///< of the bottleneck, for as many tokens, as a share of the step; may be negative
  std::string obstacle;   ///< why it cannot be at all ("does not fit: ..."); empty
  std::string condition;  ///< "if the batch may change": of what was given and would not stay; empty where all stays
  std::string lacks;      ///< what `train` lacks to run it, beyond what it lacks for the layout at hand; empty
  bool relieves_bottleneck() const { return saved >= worthwhile; }
  bool gains() const { return gain >= worthwhile; }
  bool helps() const { return gains() && obstacle.empty(); }
  bool is_ready() const { return condition.empty() && lacks.empty(); }  ///< can be tried as things are
};

/// Changes that are possible: micro-batch halved and doubled, also with less or more recomputation; global batch
/// doubled, other chunks, schedule, recomputation, ZeRO stage, order of the ranks, gradients sent in 16 bits,
/// sequence parallelism, the next lower precision; and one degree (context among them) halved for another doubled,
/// where the rest is then chosen anew (of what fits). First those that shorten the bottleneck, of these those that
/// help, of these those that `train` runs, of these those that keep what the space gives; then by gain. A space of what
/// `train` runs has no others.
std::vector<Mitigation> mitigations(const PlanProblem& problem, const LayoutSpace& space, const LayoutPrice& price);

/// What a better machine would do to the bottleneck: links of twice the bandwidth where messages are waited for (of
/// those inside and between nodes the ones that matter more), twice the devices, as twice the replicas, where forward
/// and backward are the bottleneck; nothing for other phases.
std::optional<Mitigation> better_machine(const PlanProblem& problem, const LayoutPrice& price);

}  // namespace espalier
