// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// One change to a layout, priced.
struct Mitigation {
  std::string change;  ///< "micro-batches of 1 instead of 2", with the key of the config
  LayoutPrice price;
  double gain = 0;  ///< of tokens per second, as a share; may be negative
};

/// The phase, beyond forward and backward, that takes most of the step.
PlanPhase bottleneck(const LayoutPrice& price);

/// Single changes that are possible and fit, best first: micro-batch halved and doubled, global batch doubled, more or
/// fewer chunks, the next modes of recomputation, sequence parallelism, ZeRO, another schedule, half the tensor ranks.
std::vector<Mitigation> mitigations(const PlanProblem& problem, const LayoutPrice& price);

}  // namespace espalier
