// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/presets.hpp"
#include "planning/layout_option.hpp"
#include "planning/price_layout.hpp"

namespace espalier::test {

/// A preset model on a preset machine, run by the program of this repository.
inline PlanProblem problem_of(const char* model, const char* cluster, Index sequence_length = 2048) {
  PlanProblem problem;
  problem.model = model_preset(model);
  problem.model_name = model;
  problem.cluster = cluster_preset(cluster);
  problem.implementation = espalier_implementation();
  problem.sequence_length = sequence_length;
  return problem;
}

/// "tensor=8,pipeline=4" on a batch of so many sequences.
inline Layout layout_of(const char* text, Index batch) {
  Layout start;
  start.global_batch = batch;
  return parse_layout(text, start);
}

}  // namespace espalier::test
