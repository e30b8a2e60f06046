// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"

#include <algorithm>

#include "core/with_scalar_type.hpp"
#include "models/activation_plan.hpp"
#include "models/declared_parameters.hpp"

namespace espalier {

Index matrix_parameters_per_layer(const ModelConfig& model) { return parameter_recording(model, {}).block_matrices(); }

Index num_parameters(const ModelConfig& model) {
  const ParameterRecording& declared = parameter_recording(model, {});
  return model.num_layers * declared.block().num_elements() + declared.embedding().num_elements() +
         declared.head().num_elements();
}

Index head_parameters(const ModelConfig& model) { return parameter_recording(model, {}).table_matrices(); }

double model_flops_per_token(const ModelConfig& model, Index sequence_length, double attention_share) {
  const Index matrices = model.num_layers * matrix_parameters_per_layer(model) + head_parameters(model);
  const Index scores = model.num_layers * model.q_size() * sequence_length;
  return 6 * static_cast<double>(matrices) + 12 * attention_share * static_cast<double>(scores);
}

ModelWork model_work(const ModelConfig& config, const BlockShape& shape, ScalarType compute, ScalarType residual) {
  BlockShape full = shape;
  full.attention.window = 0;
  return with_mixed_precision(compute, residual != compute, [&]<class P>() -> ModelWork {
    return {.embedding = VocabParallelEmbedding<P>::work(shape),
            .block = TransformerBlock<P>::work(shape),
            .full_block = TransformerBlock<P>::work(full),
            .full_layers = config.window == 0 ? 0 : config.full_layers,
            .head = Head<P>::work(shape, config.vocab_size)};
  });
}

LayerWork block_work(const BlockShape& shape, ScalarType compute) {
  return with_scalar_type(compute, [&]<class T>() { return TransformerBlock<MixedPrecision<T>>::work(shape); });
}

LayerWork embedding_work(const BlockShape& shape, ScalarType compute) {
  return with_scalar_type(compute, [&]<class T>() { return VocabParallelEmbedding<MixedPrecision<T>>::work(shape); });
}

LayerWork head_work(const ModelConfig& config, const BlockShape& shape, ScalarType compute) {
  return with_scalar_type(compute, [&]<class T>() { return Head<MixedPrecision<T>>::work(shape, config.vocab_size); });
}

HeadMatmuls head_matmuls(const BlockShape& shape) { return Head<Fp32>::matmuls(shape, shape.tokens()); }

namespace {

Work operation_work(const LayerWork& layer, Recompute mode, OperationKind kind) {
  switch (kind) {
    case OperationKind::forward: return layer.forward;
    case OperationKind::backward_input: {
      Work work = TransformerBlock<Fp32>::recomputes_for_input(mode) ? layer.recompute : Work{};
      return work += layer.backward_input;
    }
    case OperationKind::backward_weight: {
      Work work = TransformerBlock<Fp32>::recomputes_for_weight(mode) ? layer.recompute_for_weight : Work{};
      return work += layer.backward_weight;
    }
    case OperationKind::backward: {
      Work work = operation_work(layer, mode, OperationKind::backward_input);
      return work += operation_work(layer, mode, OperationKind::backward_weight);
    }
    default: return {};
  }
}

// On one rank, for one sequence: what is asked per token depends on nothing else.
ModelWork work_of_a_sequence(const ModelConfig& config, Index sequence_length) {
  return model_work(config, make_block_shape(config, 1, false, 1, sequence_length));
}

}  // namespace

Work operation_work(const ModelWork& model, const ChunkLayers& chunk, OperationKind kind) {
  const int full = static_cast<int>(std::clamp<Index>(model.full_layers - chunk.first, 0, chunk.count));
  Work work = (chunk.count - full) * operation_work(model.block, chunk.recompute, kind);
  work += full * operation_work(model.full_block, chunk.recompute, kind);
  if (chunk.embedding)
    work += operation_work(model.embedding, Recompute::none, kind);
  if (chunk.head)
    work += operation_work(model.head, Recompute::none, kind);
  return work;
}

double operation_flops(const ModelConfig& config, const ChunkLayers& chunk, OperationKind kind, Index sequence_length) {
  return operation_work(work_of_a_sequence(config, sequence_length), chunk, kind).flops() /
         static_cast<double>(sequence_length);
}

LayerCosts layer_flops(const ModelConfig& config, Index sequence_length, Recompute recompute) {
  const auto step = [&](const ChunkLayers& layers) {
    return operation_flops(config, layers, OperationKind::forward, sequence_length) +
           operation_flops(config, layers, OperationKind::backward, sequence_length);
  };
  return {.embedding = 0, .block = step({.count = 1, .recompute = recompute}), .head = step({.head = true})};
}

// The head does its three matmuls in forward.
double forward_flops_per_token(const ModelConfig& config, Index sequence_length, double attention_share) {
  const ModelWork work = work_of_a_sequence(config, sequence_length);
  const auto flops = [&](Work block) {
    const double all = block.flops();
    block.attention.clear();
    return all - (1 - attention_share) * (all - block.flops());
  };
  const double blocks = config.sum_over_windows(
      [&](Index window) { return flops(window > 0 ? work.block.forward : work.full_block.forward); });
  return (blocks + work.head.forward.flops() / 3) / static_cast<double>(sequence_length);
}

double training_flops_per_token(const ModelConfig& config, Index sequence_length, double attention_share) {
  return 3 * forward_flops_per_token(config, sequence_length, attention_share);
}

double gemm_fraction(const ModelConfig& config, Index sequence_length, double tokens_per_second, double gemm_rate,
                     double attention_share) {
  return tokens_per_second * training_flops_per_token(config, sequence_length, attention_share) / gemm_rate;
}

double mfu(const ModelConfig& config, Index sequence_length, double tokens_per_second, double peak_rate,
           double attention_share) {
  return tokens_per_second * model_flops_per_token(config, sequence_length, attention_share) / peak_rate;
}

TensorCollectives tensor_collectives(const Work& work) {
  TensorCollectives counts;
  for (const CollectiveWork& collective : work.collectives) {
    int& count = collective.kind == Collective::all_reduce   ? counts.all_reduce
                 : collective.kind == Collective::all_gather ? counts.all_gather
                                                             : counts.reduce_scatter;
    count += static_cast<int>(collective.count);
  }
  return counts;
}

}  // namespace espalier
