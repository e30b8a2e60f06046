// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_memory.hpp"

#include <algorithm>
#include <cmath>

#include "core/ops/cudnn_parts.hpp"
#include "models/block_memory.hpp"
#include "models/logit_rows.hpp"
#include "planning/accelerator.hpp"
#include "planning/to_double.hpp"

namespace espalier {

BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length) {
  return make_block_shape(model, layout.tensor, layout.sequence_parallel, layout.micro_batch,
                          std::max<Index>(1, sequence_length / layout.context));
}

double activation_bytes_per_layer(const ModelConfig& model, const Layout& layout, const Implementation& implementation,
                                  Index sequence_length) {
  const BlockShape shape = block_shape(model, layout, sequence_length);
  const ScalarType type = activation_type(layout.precision);
  const bool of_attention = layout.recompute == Recompute::selective && implementation.recomputes_attention;
  const BlockMemory block = block_memory(
      shape, layout.recompute == Recompute::full || of_attention ? Recompute::none : layout.recompute, type);
  double kept = to_double(block.kept);
  if (!implementation.arenas_of_train || !implementation.fused_attention)
    kept -= to_double(block.statistics);  // which published formulas leave out
  // `train` makes dropout masks again in backward. Frameworks that do not fuse attention store a byte for each value.
  const double masks = model.residual_dropout > 0 && !implementation.fused_attention ? 1 : 0;
  kept += 2 * masks * to_double(shape.rows * shape.channels);
  if (!implementation.fused_attention) {
    kept -= to_double(block.scores);
    if (!of_attention)  // softmax, its mask, the dropped-out softmax
      kept += (2 * activation_bytes(layout.precision) + masks) * to_double(shape.attention.num_heads) *
              to_double(shape.tokens()) * to_double(sequence_length);
  }
  const double e = activation_bytes(layout.precision);
  if (implementation.keeps_rows && layout.sequence_parallel)  // before attention and before the feed-forward
    kept += 2 * e * to_double(shape.rows * shape.channels) * (layout.tensor - 1);
  if (implementation.copies_logits && model.gated() && layout.recompute != Recompute::full)
    kept += e * to_double(shape.tokens() * shape.ffn);
  if (layout.recompute == Recompute::full && implementation.keeps_products) {
    const Index products = shape.qkv_channels() + shape.up + 2 * shape.channels;
    return to_double(block.stream) +
           e * to_double(shape.tokens()) *
               (to_double(shape.q_channels()) + (1 - implementation.recompute_share) * to_double(products));
  }
  if (layout.recompute == Recompute::full)
    return implementation.recompute_share * to_double(block.stream) + (1 - implementation.recompute_share) * kept;
  return kept;
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
  const double all = expert_parameters_on_rank(model, layout, experts);  // those of a token are in of_token
  return of_token + all - all * experts.of_token * experts.parallel / experts.count;
}

double expert_parameters_on_rank(const ModelConfig& model, const Layout& layout, const Experts& experts) {
  const double expert = (model.gated() ? 3.0 : 2.0) * to_double(model.hidden_size) * to_double(model.ffn_hidden_size) /
                        experts.of_token / layout.tensor;
  return expert * experts.count / experts.parallel;
}

double vocabulary_on_rank(const ModelConfig& model, const Layout& layout, const Implementation& implementation) {
  const double multiple = to_double(implementation.logit_multiple);
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

std::size_t attention_workspace_on_rank(const ModelConfig& model, const Layout& layout,
                                        const Implementation& implementation, Index sequence_length) {
  if (!implementation.cudnn_attention || activation_bytes(layout.precision) != 2 || model.attention_dropout > 0)
    return 0;
  return cudnn_workspace_bound({.batch = layout.micro_batch,
                                .sequence_length = sequence_length / layout.context,
                                .num_heads = model.num_heads / layout.tensor,
                                .head_size = model.head_size(),
                                .num_kv_heads = std::max<Index>(1, model.kv_heads() / layout.tensor)});
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
