// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/model_config.hpp"

namespace espalier {

/// Heads, and a width of the MLP, that `ranks` tensor ranks cannot share become the next that they can. The vocabulary
/// is padded in any case.
void round_sizes_up(ModelConfig& model, Index ranks);

/// Blocks of each of `parts` stages that a program makes alike by the work of blocks and head: each stage takes blocks
/// until those so far have more than its part of all work.
std::vector<Index> balanced_blocks(const ModelConfig& model, int parts);

}  // namespace espalier
