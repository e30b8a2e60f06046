// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_parameters.hpp"

#include <algorithm>

#include "planning/to_double.hpp"

namespace espalier {

BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length,
                       const LogitSizes& logits) {
  return make_block_shape(model, layout.tensor, layout.sequence_parallel, layout.micro_batch,
                          std::max<Index>(1, sequence_length / layout.context), 0, logits);
}

const ParameterRecording& rank_parameters(const ModelConfig& model, const Layout& layout, const LogitSizes& logits) {
  return parameter_recording(model, {0, layout.tensor, layout.sequence_parallel && layout.tensor > 1, logits.multiple});
}

LayerElements layer_elements(const ModelConfig& model, const Layout& layout, const Implementation& implementation) {
  const ParameterRecording& declared = rank_parameters(model, layout, implementation.logits);
  LayerElements elements{.block = to_double(declared.block().num_stored()),
                         .embedding = to_double(declared.embedding().num_stored()),
                         .table = to_double(declared.table().num_stored()),
                         .head = to_double(declared.head().num_stored())};
  const Experts& experts = implementation.experts;
  if (experts.count == 0)
    return elements;
  // In place of the feed-forward, whose width is that of all experts of a token.
  const auto feed_forward = [&](int tensor) {
    const BlockShape shape = make_block_shape(model, tensor, false, 1, 1);
    return to_double(shape.channels * (shape.ffn + shape.up));
  };
  elements.experts =
      feed_forward(are_whole(experts) ? 1 : layout.tensor) / experts.of_token * experts.count / experts.parallel;
  elements.block += elements.experts - feed_forward(layout.tensor);
  return elements;
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
