// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_parameters.hpp"

#include <algorithm>

#include "core/scalars.hpp"

namespace espalier {

BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length,
                       const LogitSizes& logits) {
  return make_block_shape(model, layout.tensor, layout.sequence_parallel, layout.micro_batch,
                          std::max<Index>(1, sequence_length / layout.context), 0, logits);
}

const ParameterRecording& rank_parameters(const ModelConfig& model, const Layout& layout, const LogitSizes& logits) {
  return parameter_recording(model, {0, layout.tensor, layout.splits_rows(), logits.multiple});
}

LayerElements layer_elements(const ModelConfig& model, const Layout& layout, const Implementation& implementation) {
  const ParameterRecording& declared = rank_parameters(model, layout, implementation.logits);
  LayerElements elements{.block = to_double(declared.block().num_stored()),
                         .block_tensors = to_double(declared.block().num_tensors()),
                         .embedding = to_double(declared.embedding().num_stored()),
                         .table = to_double(declared.table().num_stored()),
                         .head = to_double(declared.head().num_stored())};
  const Experts& experts = implementation.experts;
  if (experts.count == 0)
    return elements;
  // In place of the feed-forward, whose width is that of all experts of a token.
  const auto feed_forward = [&](int tensor) {
    return to_double(parameter_recording(model, {.size = tensor}).feed_forward_matrices());
  };
  elements.experts =
      feed_forward(are_whole(experts) ? 1 : layout.tensor) / experts.of_token * experts.count / experts.parallel;
  elements.block += elements.experts - feed_forward(layout.tensor);
  return elements;
}

}  // namespace espalier
