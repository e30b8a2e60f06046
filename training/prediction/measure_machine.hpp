// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "parallel/collectives/communicator.hpp"
#include "planning/cluster.hpp"

namespace espalier {

/// What was found, beside the cluster itself.
struct MachineFit {
  Precision precision = Precision::fp32;
  double median_error = 0;  ///< of the planner's formulas with the fitted curve, over the layers measured
  double worst_error = 0;
};

/// What `train` computes in and the planner knows: "fp32", "bf16", "fp16".
std::vector<std::string> measurable_precisions();

/// This machine as the planner sees it: a device is a rank with its threads, on GPUs with its GPU or its part of one,
/// and all ranks are measured at once, since they share caches, memory and network. Times layers of models of one layer
/// (training/prediction/measure_layers.hpp) and fits the efficiency curve of each precision
/// (training/prediction/calibration.hpp); memory bandwidth by a triad; links by all_reduces among the ranks of a host
/// and, where there are several hosts, among all. About a quarter of a minute a precision. Collective; the same result
/// on all ranks. `note` is called on rank 0 with what is being done.
/// @throws Error (usage) for fp64, which the planner does not know.
Cluster measure_machine(const Communicator& world, const std::vector<std::string>& precisions,
                        std::vector<MachineFit>& fits, const std::function<void(const std::string&)>& note);

}  // namespace espalier
