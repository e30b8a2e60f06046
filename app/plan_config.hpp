// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/price_layout.hpp"

namespace espalier {

/// What `--model` names: a preset of the planner, or a config with its batch.
struct PlannedModel {
  ModelShape model;
  Index global_batch = 0;     ///< 0: not given
  Index sequence_length = 0;  ///< 0: not given
};
PlannedModel planned_model(const std::string& name_or_file);

/// The config that `train` runs on the layout's ranks; `name_or_file` gives what no layout decides.
/// @throws Error (usage) when `train` cannot run it.
std::string train_config(const std::string& name_or_file, const PlanProblem& problem, const PlanLayout& layout);

}  // namespace espalier
