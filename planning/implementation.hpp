// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

/// The part of a model that is a mixture of experts, which `train` has not: its ffn_hidden_size is the width of all
/// experts of one token together.
struct Experts {
  int count = 0;     ///< of a block; 0: none
  int of_token = 1;  ///< that a token goes through
  int parallel = 1;  ///< ranks, of those that hold the same other weights, that share the experts of a block
};

/// How the program that runs a layout works; it decides what is kept, what overlaps and how much the host does.
struct Implementation {
  bool fused_attention = true;        ///< the (T, T) matrices never exist [Dao et al. 2022]
  bool tuned_attention = false;       ///< by a kernel written for the device (cuDNN, FlashAttention-3), not one for all
  bool recomputes_attention = false;  ///< "selective" means the attention core, as in Korthikanti et al. 2022; else
                                      ///< norms and activation function, as `train` does
  bool overlaps_reduction = true;     ///< gradients are reduced (weights of ZeRO-3 gathered) beside other work
  bool overlaps_gather = true;        ///< weights that ZeRO-1 and 2 updated are gathered beside the next forward
  bool overlaps_tensor_backward = false;  ///< those of backward overlap with the weight part
  bool overlaps_tensor = false;           ///< tensor collectives overlap with matmuls
  bool gathers_rows_again = false;        ///< backward gathers the rows that sequence parallelism splits once more, for
                                          ///< the gradients of the weights, and waits for them
  bool fused_accumulation = true;         ///< weight gradients are added up inside the product
  bool splits_messages = true;    ///< each tensor rank sends its part of a stage's output [Narayanan et al. 2021, 4.1]
  bool fused_loss = true;         ///< logits to their gradient in one kernel
  bool copies_logits = false;     ///< fp32 logits, log-softmax and gradient are copies, as PyTorch's; else one is all.
                                  ///< A gate's activation is kept, too
  bool keeps_rows = false;        ///< the rows that sequence parallelism gathered are kept for backward
  bool copies_gradients = false;  ///< 16-bit gradients stay beside those that are added up in fp32
  bool reduces_all = false;       ///< ZeRO-1 reduces all gradients on all ranks, in place of their own part
  Index logits_at_once = 0;       ///< of a rank, about; 0: those of all rows of a micro-batch exist at once
  Index logit_multiple = 1;  ///< logits of a row, and rows of a rank's token table, are a multiple of this in memory
  bool cudnn_attention = false;  ///< of 16 bits, which may keep (T, T) matrices of some heads at a time
  bool recomputes_last_product =
      false;                    ///< of a block, though only its result needs it, which is the next block's input
  bool one_ring = false;        ///< gathers through one network card of a node at a time
  bool arenas_of_train = true;  ///< slots, which also hold what a chunk received, gradients that wait for their weight
                                ///< part, messages and buckets lie as `train` lays them
  bool compiled = false;        ///< few kernels, no interpreter between them
  bool fused_elementwise = true;  ///< RMSNorm, rotary positions and gates are one kernel each, not one an operator
  bool fused_optimizer = true;    ///< one kernel reads and writes each state once, not one an operator
  double overlapped_share = 0.7;  ///< of a tensor collective that is cut up to overlap with matmuls
  double compiled_step = 0.3;     ///< of the overhead of a step, without an interpreter
  double logit_bytes = 10;    ///< of those copies: of the log-softmax, its gradient, that of the logits, less 16 bits
  double reserved_times = 1;  ///< what an allocator holds, of what is asked of it beside the states
  double library_bytes = 0;   ///< of a device, of context and libraries, where a measurement counts them
  double communicator_bytes = 0;  ///< of a device, of each group of ranks that it is in, where that counts them
  double recompute_share = 1;   ///< of the layers that recompute, where any does; of their products with keeps_products
  bool keeps_products = false;  ///< a layer that recomputes keeps the results of its other products and of attention
  int gradient_bytes = 4;       ///< of an element, as accumulated and reduced
  int extra_state_bytes = 0;    ///< of an element, beyond weights, gradients, master weights and two moments
  Experts experts = {};
};

/// The program of this repository, on CPUs or on GPUs.
Implementation espalier_implementation(bool on_host = false);

}  // namespace espalier
