// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/scalars.hpp"
#include "models/logit_rows.hpp"
#include "models/rank_memory.hpp"

namespace espalier {

/// The part of a model that is a mixture of experts, which `train` has not: its ffn_hidden_size is the width of all
/// experts of one token together.
struct Experts {
  int count = 0;     ///< of a block; 0: none
  int of_token = 1;  ///< that a token goes through
  int parallel = 1;  ///< ranks, of those that hold the same other weights, that share the experts of a block
};

/// Arrays of activations that the kernels of a program read or write beyond those that the layers list (core/work.hpp),
/// in one pass; negative: fewer. Of `train` there are none.
struct MoreArrays {
  double stream = 0;  ///< like the residual stream
  double qkv = 0;     ///< like queries, keys and values
  double qk = 0;      ///< like queries and keys
  double ffn = 0;     ///< like the output of the activation function
  double logits = 0;
};

/// How the program that runs a layout works; it decides what overlaps and how much the host does.
struct Implementation {
  bool fused_attention = true;        ///< the (T, T) matrices never exist [Dao et al. 2022]
  bool tuned_attention = false;       ///< by a kernel written for the device (cuDNN, FlashAttention-3), not one for all
  bool recomputes_attention = false;  ///< "selective" means the attention core, as in Korthikanti et al. 2022; else
                                      ///< norms and activation function, as `train` does
  bool overlaps_reduction = true;     ///< gradients are reduced (weights of ZeRO-3 gathered) beside other work
  bool overlaps_gather = true;        ///< weights that ZeRO-1 and 2 updated are gathered beside the next forward
  bool overlaps_tensor = false;       ///< tensor collectives overlap with matmuls
  bool overlaps_tensor_backward = false;  ///< those of backward overlap with the gradients of weights
  bool gathers_rows_again = false;        ///< backward gathers the rows that sequence parallelism splits once more, for
                                          ///< the gradients of the weights, and waits for them
  bool fused_accumulation = true;         ///< weight gradients are added up inside the product
  bool splits_messages = true;  ///< each tensor rank sends its part of a stage's output [Narayanan et al. 2021, 4.1]
  bool reduces_all = false;     ///< ZeRO-1 reduces all gradients on all ranks, in place of their own part
  bool on_host = true;          ///< on CPUs, with their libraries of products
  LogitSizes logits = logits_on_host;
  bool cudnn_attention = false;  ///< of 16 bits, which may keep (T, T) matrices of some heads at a time
  bool recomputes_last_product =
      false;                      ///< of a block, though only its result needs it, which is the next block's input
  bool one_ring = false;          ///< gathers through one network card of a node at a time
  bool shards_tables = false;     ///< ZeRO-2 and 3 shard the tables as well as the layers
  bool compiled = false;          ///< few kernels, no interpreter between them
  bool graphed = false;           ///< the host starts a recorded graph, not kernel by kernel
  bool slices_tensors = false;    ///< ZeRO gathers and scatters each tensor slice by slice, which the host starts
  bool fused_optimizer = true;    ///< one kernel reads and writes each state once, not one an operator
  double overlapped_share = 0.7;  ///< of a tensor collective that is cut up to overlap with matmuls
  double recompute_share = 1;   ///< of the layers that recompute, where any does; of their products with keeps_products
  bool keeps_products = false;  ///< a layer that recomputes keeps the results of its other products and of attention
  bool sends_rows_once = false;      ///< to ranks with several experts of a row
  bool overlaps_experts = false;     ///< messages of a micro-batch's experts go beside the work of another micro-batch
  double cast_bytes = 4;             ///< read and written to cast an element to fp8, for the product and transposed for
                                     ///< the gradient: 2 and 1 + 1 where scales are those of earlier steps
  double fp8_matmul_efficiency = 1;  ///< of the rate of fp8 products with one scale a tensor
  bool casts_weights = false;        ///< to fp8 before each use, not once a step
  int gradient_bytes = 4;            ///< of an element, as reduced where weights have 16 bits
  bool fp32_residual = false;        ///< the residual stream where weights have 16 bits, also between stages
  bool separate_documents = false;   ///< attention needs arrays that say which document a token is in
  bool copies_state = false;         ///< on a host: for saves during training
  MoreArrays more_forward = {};
  MoreArrays more_backward = {};
  Experts experts = {};
};

/// Settings of `train` beside the layout, on which memory and messages depend. These are the defaults.
struct TrainSettings {
  bool rounds_gradients = false;    ///< 16-bit types: gradients are sent in the compute type, not in fp32
  bool fp32_residual = false;       ///< 16-bit types: the residual stream, also between stages
  bool separate_documents = false;  ///< data.documents
  bool copies_state = false;        ///< checkpoint.async
  bool cudnn_attention = true;      ///< where it is built in
};

/// The program of this repository, on CPUs or on GPUs.
Implementation espalier_implementation(bool on_host = false, const TrainSettings& settings = {});

/// Why cuDNN cannot compute the attention of a model, in words; empty where it can.
std::string why_not_cudnn(const ModelConfig& model, bool separate_documents);

/// The types of a program that trains in this precision.
TrainingTypes types_of_program(const Implementation& implementation, Precision precision);

/// What memory depends on beside the model and the layout, without libraries.
MemoryOptions memory_options(const Implementation& implementation, Index sequence_length, const TrainingTypes& types);

/// Of an element of a gradient, as it is sent between replicas.
double sent_gradient_bytes(const Implementation& implementation, Precision precision);

/// Of the output of a stage, which is sent to the next: (rows, C) in the type of the residual stream.
double stage_output_bytes(const Implementation& implementation, Precision precision, double rows, Index hidden_size);

}  // namespace espalier
