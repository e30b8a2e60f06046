// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/state_bytes.hpp"

namespace espalier {

StateBytes state_bytes(Precision precision, const Implementation& implementation) {
  if (precision == Precision::fp32 || precision == Precision::tf32)
    return {.weights = 4, .gradients = 4, .optimizer = 8};
  return {.weights = 2,
          .gradients = static_cast<double>(implementation.gradient_bytes),
          .optimizer = 12.0 + implementation.extra_state_bytes};
}

StateBytes sharded_state_bytes(StateBytes bytes, int zero_stage, double replicas) {
  if (zero_stage >= 1)
    bytes.optimizer /= replicas;
  if (zero_stage >= 2)
    bytes.gradients /= replicas;
  if (zero_stage >= 3)
    bytes.weights /= replicas;
  return bytes;
}

}  // namespace espalier
