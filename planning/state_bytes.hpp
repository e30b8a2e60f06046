// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/layout.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// Bytes of model states of one element, by what they are; mixed precision: 2 + gradients + 12 (master weight and two
/// moments in fp32) [Rajbhandari et al. 2020, 3.1], fp32: 4 + 4 + 8.
struct StateBytes {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double total() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(Precision precision, const Implementation& implementation);

/// The same on each of `replicas` ranks: ZeRO-1 shards the optimizer, 2 also gradients, 3 also weights [Table 1].
StateBytes sharded_state_bytes(StateBytes bytes, int zero_stage, double replicas);

}  // namespace espalier
