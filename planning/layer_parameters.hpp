// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/cost.hpp"
#include "models/layout.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// One micro-batch on a rank of the tensor axis, the first, which has most. Context ranks share its sequences.
BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length);

/// Columns of K (and of V) on a tensor rank: its share of the heads; one head, of which other ranks have copies, where
/// there are more ranks than such heads.
double kv_size_on_rank(const ModelConfig& model, const Layout& layout);

/// Logits of a row, and rows of the token table, in the memory of the tensor rank that has most of the vocabulary.
double vocabulary_on_rank(const ModelConfig& model, const Layout& layout, const Implementation& implementation);

/// Elements of the weights on a tensor rank: of one block with the rank's experts, of these, of the embedding (the
/// position table is not split), of the head.
double parameters_per_layer_on_rank(const ModelConfig& model, const Layout& layout, const Experts& experts = {});
/// Whether an expert lies on one rank, not cut among tensor ranks: programs do so where ranks share the experts.
inline bool are_whole(const Experts& experts) { return experts.parallel > 1; }
double expert_parameters_on_rank(const ModelConfig& model, const Layout& layout, const Experts& experts);
double embedding_parameters_on_rank(const ModelConfig& model, const Layout& layout,
                                    const Implementation& implementation);
double head_parameters_on_rank(const ModelConfig& model, const Layout& layout, const Implementation& implementation);

/// Blocks of each part of the model in forward order: equal where they divide; one fewer first and last where then they
/// divide (embedding and head count as blocks); else as even as possible.
std::vector<Index> blocks_per_part(Index num_layers, int parts);

/// The same for a layout, which may bring its own.
std::vector<Index> blocks_per_part(const ModelConfig& model, const Layout& layout);

}  // namespace espalier
