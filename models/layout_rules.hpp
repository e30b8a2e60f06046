// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/layout.hpp"
#include "models/model_config.hpp"

// What a layout must be for a model and its sequences, on any machine: `train` and `plan` refuse the same layouts with
// the same sentences.

namespace espalier {

/// A rule that a layout breaks.
struct LayoutProblem {
  std::string section;   ///< of a config; the sentence begins with a key of it: "parallel"
  std::string sentence;  ///< "tensor 8 cannot share num_heads 12 (nearest: tensor 6 or 12, num_heads 8 or 16)"
};

/// All rules that the layout breaks. @pre its replicas, micro-batch and virtual stages are known
/// @param most_parts into which the layers can be cut: see why_too_many_parts()
std::vector<LayoutProblem> layout_problems(const ModelConfig& model, Index sequence_length, const Layout& layout,
                                           Index most_parts);

/// Why a model cannot be cut into the parts of the layout, one layer each at least; empty when it can.
/// @param most_parts its layers. The planner prices the embedding and the head on parts of their own, too
std::string why_too_many_parts(Index most_parts, const Layout& layout);

/// Why nodes cannot share states among their replicas (ShardOver::node).
std::string unlike_nodes_text(Index ranks_per_node, int replicas);

/// Numbers of tensor ranks that can share the model, in order.
std::vector<Index> tensor_degrees(const ModelConfig& model);

}  // namespace espalier
