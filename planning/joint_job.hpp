// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/run_cost.hpp"
#include "planning/search.hpp"

namespace espalier {

/// One job across two clusters: a pipeline whose first stages lie on one of them and whose last on the other. Tensor
/// parallelism, replicas and their gradients stay inside a cluster. Only activations, their gradients and the gradient
/// of a tied embedding cross the link between them.
struct JointJob {
  int first = 0;         ///< which of the two problems has the first stages
  int first_stages = 0;  ///< how many it has
  Layout layout;         ///< of all devices; `layers` are given, in proportion to the speed of the stages
  double step_seconds = 0;
  Interval step_interval;  ///< the wider of the two clusters'
  double tokens_per_second = 0;
  double link_seconds = 0;                ///< of the micro-batch of all replicas that crosses the link, either way
  std::vector<std::size_t> memory_bytes;  ///< of a device, the most on each problem's cluster
  Index layers_on(int problem) const;     ///< how many blocks lie on that cluster
  /// What training on the tokens of the problems takes; none where they name no tokens.
  std::optional<RunCost> run_cost(const std::vector<PlanProblem>& problems) const;
};

/// What joins two clusters.
struct ClusterLink {
  double bandwidth = 0;  ///< bytes per second and direction, of all devices together
  double latency = 1e-3;
};

/// The fastest such job, or why there is none.
struct JointSearch {
  std::optional<JointJob> job;
  std::string why_none;
};

/// Searches 1F1B pipelines over all devices of both: every degree of tensor parallelism and replicas that divides both
/// clusters, both orders, micro-batches up to 8, recomputation, ZeRO up to 1.
/// @param problems two of them, the same model; their clusters and numbers of devices may differ
JointSearch search_joint_job(const std::vector<PlanProblem>& problems, const LayoutSpace& space,
                             const ClusterLink& link);

/// "one job across both clusters: ..." with layers, step, tokens per second, and what it gains over the faster alone.
/// @param alone tokens per second of the faster cluster alone; 0: none has a layout
std::string joint_job_text(const std::vector<PlanProblem>& problems, const JointSearch& search, double alone);

}  // namespace espalier
