// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"

namespace espalier {

Index num_parameters(const GptConfig& config) {
  const Index c = config.hidden_size;
  const Index f = config.ffn_hidden_size;
  const Index norm = 2 * c;
  const Index attention = 3 * c * c + 3 * c + c * c + c;
  const Index mlp = 2 * c * f + f + c;
  return config.vocab_size * c + config.max_sequence_length * c + config.num_layers * (2 * norm + attention + mlp) +
         norm;
}

LayerCosts layer_flops(const GptConfig& config, Index sequence_length) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.ffn_hidden_size);
  const double products = 4 * c * c + 2 * c * f;
  const double scores = 2 * c * 0.5 * static_cast<double>(sequence_length + 1);
  return {.embedding = 0, .block = 2 * (products + scores), .head = 2 * static_cast<double>(config.vocab_size) * c};
}

double forward_flops_per_token(const GptConfig& config, Index sequence_length) {
  const LayerCosts costs = layer_flops(config, sequence_length);
  return costs.embedding + static_cast<double>(config.num_layers) * costs.block + costs.head;
}

double training_flops_per_token(const GptConfig& config, Index sequence_length) {
  return 3 * forward_flops_per_token(config, sequence_length);
}

TensorCollectives tensor_collectives(const ChunkLayers& chunk, OperationKind kind, bool sequence_parallel) {
  const int blocks = static_cast<int>(chunk.count);
  const int embedding = chunk.embedding ? 1 : 0;
  const int head = chunk.head ? 1 : 0;
  switch (kind) {
    case OperationKind::forward:  // in and out of attention and mlp; the softmax statistics of the loss
      if (sequence_parallel)
        return {.all_reduce = 2 * head, .all_gather = 2 * blocks + head, .reduce_scatter = 2 * blocks + embedding};
      return {.all_reduce = 2 * blocks + embedding + 2 * head};
    case OperationKind::backward_input:
      if (sequence_parallel)
        return {.all_gather = 2 * blocks, .reduce_scatter = 2 * blocks + head};
      return {.all_reduce = 2 * blocks + head};
    case OperationKind::backward_weight:  // rows are gathered again rather than kept
      if (sequence_parallel)
        return {.all_gather = 4 * blocks + head + embedding};
      return {};
    case OperationKind::backward: {
      const TensorCollectives input = tensor_collectives(chunk, OperationKind::backward_input, sequence_parallel);
      const TensorCollectives weight = tensor_collectives(chunk, OperationKind::backward_weight, sequence_parallel);
      return {input.all_reduce + weight.all_reduce, input.all_gather + weight.all_gather,
              input.reduce_scatter + weight.reduce_scatter};
    }
    default: return {};
  }
}

}  // namespace espalier
