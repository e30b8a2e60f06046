// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "app/plan_options.hpp"
#include "planning/joint_job.hpp"
#include "planning/layout_space.hpp"

namespace espalier {

/// What `espalier plan` is asked.
struct PlanTask {
  std::vector<PlanProblem> problems;  ///< one a machine
  LayoutSpace space;
};

/// Of the options, with models and clusters read; notes go to standard error.
/// @throws Error (usage) for what is missing or cannot be.
PlanTask task_from(const PlanOptions& options);

/// "100 Gb/s", what joins two clusters. @throws Error (usage)
ClusterLink link_from(const std::string& text);

}  // namespace espalier
