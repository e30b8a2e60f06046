// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace espalier::test {

/// A tiny model of transformers in fp64, see transformers_reference.py. Of arrays stand sums, weighted by a pattern.
struct TransformersReference {
  std::string config;                       ///< config.json
  double logits;                            ///< before the first step
  std::vector<double> losses;               ///< mean, before each of ten steps of AdamW
  std::map<std::string, double> gradients;  ///< of the first step, by tensor
};
using TransformersReferences = std::map<std::string, TransformersReference>;

}  // namespace espalier::test
