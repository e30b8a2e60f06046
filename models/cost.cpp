// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"

namespace espalier {

namespace {

Index norm_parameters(const ModelConfig& model) { return (model.norm == Norm::rmsnorm ? 1 : 2) * model.hidden_size; }

}  // namespace

Index matrix_parameters_per_layer(const ModelConfig& model) {
  const Index c = model.hidden_size;
  const Index attention = c * (c + 2 * model.kv_size()) + c * c;
  return attention + (model.gated() ? 3 : 2) * c * model.ffn_hidden_size;
}

Index parameters_per_layer(const ModelConfig& model) {
  const Index c = model.hidden_size;
  const Index biases = c + 2 * model.kv_size() + c + (model.gated() ? 2 : 1) * model.ffn_hidden_size + c;
  return matrix_parameters_per_layer(model) + 2 * norm_parameters(model) + (model.bias ? biases : 0);
}

Index embedding_parameters(const ModelConfig& model) {
  return (model.vocab_size + model.learned_positions()) * model.hidden_size;
}

Index head_parameters(const ModelConfig& model) {
  return norm_parameters(model) + (model.tied_embeddings ? 0 : model.vocab_size * model.hidden_size);
}

Index num_parameters(const ModelConfig& model) {
  return model.num_layers * parameters_per_layer(model) + embedding_parameters(model) + head_parameters(model);
}

double model_flops_per_token(const ModelConfig& model, Index sequence_length) {
  const Index matrices = model.num_layers * matrix_parameters_per_layer(model) + model.vocab_size * model.hidden_size;
  const Index scores = model.num_layers * model.hidden_size * sequence_length;
  return 6 * static_cast<double>(matrices) + 12 * static_cast<double>(scores);
}

namespace {

// Of one layer forward, per token.
struct ForwardFlops {
  double products;  // of a block, with weights
  double scores;    // of a block: Q K^T, and softmax times V
  double down;      // the product of a block that recomputation leaves out: it makes the output, which is kept
  double head;
};

ForwardFlops forward_flops(const ModelConfig& config, Index sequence_length) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.ffn_hidden_size);
  return {.products = 2 * (4 * c * c + 2 * c * f),
          .scores = 2 * c * static_cast<double>(sequence_length + 1),
          .down = 2 * c * f,
          .head = 2 * static_cast<double>(config.vocab_size) * c};
}

}  // namespace

double operation_flops(const ModelConfig& config, const ChunkLayers& chunk, OperationKind kind, Index sequence_length) {
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

LayerCosts layer_flops(const ModelConfig& config, Index sequence_length, Recompute recompute) {
  const auto step = [&](const ChunkLayers& layers) {
    return operation_flops(config, layers, OperationKind::forward, sequence_length) +
           operation_flops(config, layers, OperationKind::backward, sequence_length);
  };
  return {.embedding = 0, .block = step({.count = 1, .recompute = recompute}), .head = step({.head = true})};
}

double forward_flops_per_token(const ModelConfig& config, Index sequence_length) {
  const ForwardFlops flops = forward_flops(config, sequence_length);
  return static_cast<double>(config.num_layers) * (flops.products + flops.scores) + flops.head;
}

double training_flops_per_token(const ModelConfig& config, Index sequence_length) {
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
