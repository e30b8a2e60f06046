// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/gpt_config.hpp"
#include "models/gpt_partition.hpp"
#include "parallel/pipeline_schedule.hpp"

// What a model costs, from its shape alone.

namespace espalier {

/// Elements of all weights, the tied head counted once.
Index num_parameters(const GptConfig& config);

/// Floating-point operations of matrix products per token of a forward pass: 2 for each weight of a product (blocks and
/// head), and for causal attention 2 * 2 * C for each of the (T + 1) / 2 positions seen on average. The half that
/// causality leaves out is not counted: it need not be computed.
double forward_flops_per_token(const GptConfig& config, Index sequence_length);

/// Of forward and backward: three times the forward pass.
double training_flops_per_token(const GptConfig& config, Index sequence_length);

/// FLOPs per token, forward and backward, of the items that a pipeline is cut between; the embedding multiplies
/// nothing.
LayerCosts layer_flops(const GptConfig& config, Index sequence_length, Recompute recompute = Recompute::none);

/// FLOPs per token of an operation of a chunk, recomputation included. The loss and all products of the head belong to
/// its forward.
double operation_flops(const GptConfig& config, const ChunkLayers& chunk, OperationKind kind, Index sequence_length);

/// Collectives on the tensor axis inside one operation of a chunk: two for each block and direction, those of the split
/// embedding and head, two small ones for each of the `logit_chunks` of the loss, and those that recomputation repeats.
TensorCollectives tensor_collectives(const ChunkLayers& chunk, OperationKind kind, bool sequence_parallel,
                                     int logit_chunks);

}  // namespace espalier
