// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_parameters.hpp"

#include <algorithm>
#include <cmath>

#include "planning/to_double.hpp"

namespace espalier {

namespace {

double feed_forward_parameters(const ModelConfig& model) {
  return (model.gated() ? 3.0 : 2.0) * to_double(model.hidden_size) * to_double(model.ffn_hidden_size);
}

}  // namespace

BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length) {
  return make_block_shape(model, layout.tensor, layout.sequence_parallel, layout.micro_batch,
                          std::max<Index>(1, sequence_length / layout.context));
}

double kv_size_on_rank(const ModelConfig& model, const Layout& layout) {
  return to_double(model.head_size()) * std::ceil(to_double(model.kv_heads()) / layout.tensor);
}

double parameters_per_layer_on_rank(const ModelConfig& model, const Layout& layout, const Experts& experts) {
  const double norms = 2 * to_double(norm_parameters(model));
  const double copied_columns = 2 * (kv_size_on_rank(model, layout) - to_double(model.kv_size()) / layout.tensor);
  const double of_token = norms + (to_double(parameters_per_layer(model)) - norms) / layout.tensor +
                          to_double(model.hidden_size) * copied_columns;
  if (experts.count == 0)
    return of_token;
  return of_token - feed_forward_parameters(model) / layout.tensor + expert_parameters_on_rank(model, layout, experts);
}

double expert_parameters_on_rank(const ModelConfig& model, const Layout& layout, const Experts& experts) {
  const double expert = feed_forward_parameters(model) / experts.of_token / (are_whole(experts) ? 1 : layout.tensor);
  return expert * experts.count / experts.parallel;
}

double vocabulary_on_rank(const ModelConfig& model, const Layout& layout, const Implementation& implementation) {
  const double multiple = to_double(implementation.logits.multiple);
  return multiple * std::ceil(std::ceil(to_double(model.vocab_size) / layout.tensor) / multiple);
}

double embedding_parameters_on_rank(const ModelConfig& model, const Layout& layout,
                                    const Implementation& implementation) {
  return to_double(model.hidden_size) *
         (vocabulary_on_rank(model, layout, implementation) + to_double(model.learned_positions()));
}

double head_parameters_on_rank(const ModelConfig& model, const Layout& layout, const Implementation& implementation) {
  const double table = model.tied_embeddings ? 0 : vocabulary_on_rank(model, layout, implementation);
  return to_double(norm_parameters(model)) + to_double(model.hidden_size) * table;
}

std::vector<Index> blocks_per_part(Index num_layers, int parts) {
  std::vector<Index> blocks(static_cast<std::size_t>(parts), num_layers / parts);
  const Index rest = num_layers % parts;
  if (rest == 0)
    return blocks;
  if ((num_layers + 2) % parts == 0) {
    blocks.assign(static_cast<std::size_t>(parts), (num_layers + 2) / parts);
    --blocks.front();
    --blocks.back();
    return blocks;
  }
  for (Index i = 0; i < rest; ++i)  // the longer parts in the middle: first and last have embedding and head
    ++blocks[static_cast<std::size_t>((parts - rest) / 2 + i)];
  return blocks;
}

std::vector<Index> blocks_per_part(const ModelConfig& model, const Layout& layout) {
  return layout.layers.empty() ? blocks_per_part(model.num_layers, layout.num_parts()) : layout.layers;
}

}  // namespace espalier
