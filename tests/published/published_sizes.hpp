// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/layout.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Heads, and a width of the MLP, that `ranks` tensor ranks cannot share become the next that they can. The vocabulary
/// is padded in any case.
void round_sizes_up(ModelConfig& model, Index ranks);

/// Blocks of each of `parts` parts of a model as most programs give them: equal where they divide; one fewer first and
/// last where then they divide (embedding and head count as blocks); else as even as possible.
std::vector<Index> published_blocks(Index num_layers, int parts);
/// Those that a row gives, or these.
std::vector<Index> published_blocks(Index num_layers, const Layout& layout);

/// Whether each part has as many: virtual stages that a row does not tell are such.
bool divides_blocks(Index num_layers, int parts);

/// Blocks of each of `parts` stages that a program makes alike by the work of blocks and head: each stage takes blocks
/// until those so far have more than its part of all work.
std::vector<Index> balanced_blocks(const ModelConfig& model, int parts);

}  // namespace espalier
