// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "app/rehearse.hpp"
#include "planning/joint_job.hpp"
#include "planning/layout_space.hpp"

namespace espalier {

/// Of `espalier plan`; 0, -1 and empty: not given.
struct PlanOptions {
  std::string model;
  std::vector<std::string> clusters;
  int devices = 0;
  Index batch = 0;
  Index sequence_length = 0;
  std::string tokens;
  std::vector<std::string> precisions;
  std::vector<std::string> fixed;
  std::vector<std::string> layouts;
  std::string link;  ///< between two clusters
  std::vector<int> scale;
  bool weak = false;
  double most_step_seconds = 0;
  double least_tokens_per_second = 0;
  double reserve_gib = -1;
  std::optional<std::size_t> top;
  bool contexts = false;
  bool json = false;
  std::string memo;
  std::string config;
  std::vector<std::string> settings;  ///< "section.key=value" for the config
  RehearseOptions rehearsal{.directory = {}, .mpiexec = default_mpiexec()};
};

/// What --fix says, as one text; "" where nothing is fixed.
std::string fixed_choices(const PlanOptions& options);

/// What the parser of the command line cannot see: empty values, and choices that cannot be read or are fixed twice.
/// Options exclude each other where one would leave another without effect: whoever gives both expects an answer that
/// would not come. @throws Error (usage).
void check_options(const CLI::App& command, const PlanOptions& options);

/// A size that --scale names twice is one point of the curve; a note says so.
void drop_repeated_sizes(PlanOptions& options);

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
