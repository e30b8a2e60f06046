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

namespace {

// Of one layer forward, per token.
struct ForwardFlops {
  double products;  // of a block, with weights
  double scores;    // of a block: Q K^T, and softmax times V
  double down;      // the product of a block that recomputation leaves out: it makes the output, which is kept
  double head;
};

ForwardFlops forward_flops(const GptConfig& config, Index sequence_length) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.ffn_hidden_size);
  return {.products = 2 * (4 * c * c + 2 * c * f),
          .scores = 2 * c * static_cast<double>(sequence_length + 1),
          .down = 2 * c * f,
          .head = 2 * static_cast<double>(config.vocab_size) * c};
}

}  // namespace

double operation_flops(const GptConfig& config, const ChunkLayers& chunk, OperationKind kind, Index sequence_length) {
  const ForwardFlops flops = forward_flops(config, sequence_length);
  const auto blocks = static_cast<double>(chunk.count);
  const double again = chunk.recompute == Recompute::full ? flops.products - flops.down + flops.scores : 0;
  switch (kind) {
    case OperationKind::forward: return blocks * (flops.products + flops.scores) + (chunk.head ? 3 * flops.head : 0);
    case OperationKind::backward_input: return blocks * (flops.products + 2 * flops.scores + again);
    case OperationKind::backward_weight: return blocks * flops.products;
    case OperationKind::backward:
      return operation_flops(config, chunk, OperationKind::backward_input, sequence_length) +
             operation_flops(config, chunk, OperationKind::backward_weight, sequence_length);
    default: return 0;
  }
}

LayerCosts layer_flops(const GptConfig& config, Index sequence_length, Recompute recompute) {
  const auto step = [&](const ChunkLayers& layers) {
    return operation_flops(config, layers, OperationKind::forward, sequence_length) +
           operation_flops(config, layers, OperationKind::backward, sequence_length);
  };
  return {.embedding = 0, .block = step({.count = 1, .recompute = recompute}), .head = step({.head = true})};
}

double forward_flops_per_token(const GptConfig& config, Index sequence_length) {
  const ForwardFlops flops = forward_flops(config, sequence_length);
  return static_cast<double>(config.num_layers) * (flops.products + flops.scores) + flops.head;
}

double training_flops_per_token(const GptConfig& config, Index sequence_length) {
  return 3 * forward_flops_per_token(config, sequence_length);
}

TensorCollectives tensor_collectives(const ChunkLayers& chunk, OperationKind kind, bool sequence_parallel,
                                     int logit_chunks) {
  const int blocks = static_cast<int>(chunk.count);
  const int recomputed = chunk.recompute == Recompute::full ? blocks : 0;
  const int embedding = chunk.embedding ? 1 : 0;
  const int head = chunk.head ? 1 : 0;
  switch (kind) {
    case OperationKind::forward: {  // in and out of attention, mlp and head; the softmax statistics of the loss
      const int statistics = 2 * logit_chunks * head;
      if (sequence_parallel)
        return {
            .all_reduce = statistics, .all_gather = 2 * blocks + head, .reduce_scatter = 2 * blocks + embedding + head};
      return {.all_reduce = 2 * blocks + embedding + head + statistics};
    }
    case OperationKind::backward_input:  // recomputed: in and out of attention, into the mlp
      if (sequence_parallel)
        return {.all_gather = 2 * blocks + 2 * recomputed, .reduce_scatter = 2 * blocks + recomputed};
      return {.all_reduce = 2 * blocks + recomputed};
    case OperationKind::backward_weight:  // rows are gathered again rather than kept
      if (sequence_parallel)
        return {.all_gather = 4 * blocks + embedding};
      return {};
    case OperationKind::backward: {
      const TensorCollectives input =
          tensor_collectives(chunk, OperationKind::backward_input, sequence_parallel, logit_chunks);
      const TensorCollectives weight =
          tensor_collectives(chunk, OperationKind::backward_weight, sequence_parallel, logit_chunks);
      return {input.all_reduce + weight.all_reduce, input.all_gather + weight.all_gather,
              input.reduce_scatter + weight.reduce_scatter};
    }
    default: return {};
  }
}

}  // namespace espalier
