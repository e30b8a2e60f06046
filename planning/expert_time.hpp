// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/layout.hpp"
#include "models/model_config.hpp"
#include "planning/cluster.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// Seconds of the experts of a block on a rank, of one micro-batch. Rows are taken as spread evenly over the experts.
struct ExpertTime {
  double forward = 0;  ///< grouped products [Gale et al. 2022] and the router's
  double backward_input = 0;
  double backward_weight = 0;
  double copies = 0;    ///< of each pass: rows are sorted by expert, and put back
  double messages = 0;  ///< of each pass: rows go to the ranks that have their experts, and come back
  double kernels = 0;   ///< of each pass, beside those of a dense feed-forward
};

/// @param rows of the micro-batch on a rank
/// @pre implementation.experts.count > 0
ExpertTime expert_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                       const Implementation& implementation, double rows);

}  // namespace espalier
