// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// What each of them begins with.
constexpr std::string_view plan_config_begin = "# `espalier plan`: ";

/// A config that `train` runs on the ranks of a layout.
struct TrainConfig {
  std::string toml;
  std::vector<std::string> to_fill;  ///< what no plan knows and stands in for something of the user's, a line a key
  std::string cluster;               ///< run.cluster, where the settings give none
};

/// @param model preset, or the file that gives what no layout decides
/// @param cluster that the plan was made for, as it was named: it becomes run.cluster, by which `train` predicts its
/// step
/// @param settings "section.key=value" of what no layout decides; they win over the file
/// @throws Error (usage) when `train` cannot run the layout, or a setting contradicts it.
TrainConfig train_config(const std::string& model, const std::string& cluster, const std::vector<std::string>& settings,
                         const PlanProblem& problem, const LayoutPrice& price);

}  // namespace espalier
