// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/block_shape.hpp"
#include "models/layer_partition.hpp"
#include "models/model_config.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

// What a model costs, from its shape alone.

namespace espalier {

/// Elements of the weight matrices of one block.
Index matrix_parameters_per_layer(const ModelConfig& model);

/// Elements of the matrix of the head, tied or not.
Index head_parameters(const ModelConfig& model);

/// Elements of all weights, a tied head counted once. For GPT: P = 12 L C^2 (1 + 13/(12 C) + (V + T)/(12 L C))
/// [Narayanan et al. 2021, eq. 2].
Index num_parameters(const ModelConfig& model);

/// Model FLOPs per token of a step, the convention that MFU is published in: 3 x (2 x matrix elements (blocks and head)
/// + 4 T NH HS L) [Chowdhery et al. 2022, App. B; Korthikanti et al. 2022, eq. 7]; attention counted without causality.
/// @param attention_share that separate documents leave of attention
double model_flops_per_token(const ModelConfig& model, Index sequence_length, double attention_share = 1);

/// What the layers of a model do for one micro-batch on a rank.
struct ModelWork {
  LayerWork embedding;
  LayerWork block;
  LayerWork full_block;   ///< without the window that `block` has
  Index full_layers = 0;  ///< the first layers that are such
  LayerWork head;
};
/// Sizes of messages follow from the types.
ModelWork model_work(const ModelConfig& config, const BlockShape& shape, ScalarType compute = ScalarType::fp32,
                     ScalarType residual = ScalarType::fp32);

/// Of one layer alone, by the type of its activations.
LayerWork block_work(const BlockShape& shape, ScalarType compute);
LayerWork embedding_work(const BlockShape& shape, ScalarType compute);
LayerWork head_work(const ModelConfig& config, const BlockShape& shape, ScalarType compute);

/// Matmuls of the head for one micro-batch: of the logits, of the table's gradient, of the gradient of the
/// norm's output.
HeadMatmuls head_matmuls(const BlockShape& shape);

/// What an operation of a chunk does, recomputation included. Messages and operations of the whole step: nothing.
Work operation_work(const ModelWork& model, const ChunkLayers& chunk, OperationKind kind);

/// Of matmuls per token of a forward pass: 2 for each weight of a matrix (blocks and head), and for causal
/// attention 2 * 2 * C for each of the (T + 1) / 2 positions seen on average. The half that causality leaves out is not
/// counted: it need not be computed. @param attention_share that separate documents leave of attention
double forward_flops_per_token(const ModelConfig& config, Index sequence_length, double attention_share = 1);

/// Of forward and backward: three times the forward pass.
double training_flops_per_token(const ModelConfig& config, Index sequence_length, double attention_share = 1);

/// Share of the measured GEMM rate that the matmuls of a run reach. Rates are FLOP/s of all devices together.
double gemm_fraction(const ModelConfig& config, Index sequence_length, double tokens_per_second, double gemm_rate,
                     double attention_share = 1);

/// Share of the devices' peak (model FLOPs utilization) [Chowdhery et al. 2022, appendix B].
double mfu(const ModelConfig& config, Index sequence_length, double tokens_per_second, double peak_rate,
           double attention_share = 1);

/// FLOPs per token, forward and backward, of the items that a pipeline is cut between; the embedding multiplies
/// nothing.
LayerCosts layer_flops(const ModelConfig& config, Index sequence_length, Recompute recompute = Recompute::none);

/// FLOPs per token of an operation of a chunk, recomputation included.
double operation_flops(const ModelConfig& config, const ChunkLayers& chunk, OperationKind kind, Index sequence_length);

/// How many collectives of each kind.
TensorCollectives tensor_collectives(const Work& work);

}  // namespace espalier
