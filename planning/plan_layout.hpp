// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "models/recompute.hpp"
#include "parallel/pipeline_schedule.hpp"
#include "planning/accelerator.hpp"
#include "planning/collective_time.hpp"

namespace espalier {

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
  bool splits_messages = true;  ///< each tensor rank sends its part of a stage's output [Narayanan et al. 2021, 4.1]
  bool fused_loss = true;       ///< logits to their gradient in one kernel
  Index logits_at_once = 0;     ///< of a rank, about; 0: those of all rows of a micro-batch exist at once
  Index logit_multiple = 1;     ///< logits of a row, and rows of a rank's token table, are a multiple of this in memory
  bool cudnn_attention = false;  ///< of 16 bits, which may keep (T, T) matrices of some heads at a time
  bool recomputes_last_product =
      false;                    ///< of a block, though only its result needs it, which is the next block's input
  bool one_ring = false;        ///< gathers through one network card of a node at a time
  bool arenas_of_train = true;  ///< slots, which also hold what a chunk received, gradients that wait for their weight
                                ///< part, messages and buckets lie as `train` lays them
  bool compiled = false;        ///< few kernels, no interpreter between them
  bool fused_elementwise = true;  ///< RMSNorm, rotary positions and gates are one kernel each, not one an operator
  bool fused_optimizer = true;    ///< one kernel reads and writes each state once, not one an operator
  int gradient_bytes = 4;         ///< of an element, as accumulated and reduced
  int extra_state_bytes = 0;      ///< of an element, beyond weights, gradients, master weights and two moments
};

/// The program of this repository, on CPUs or on GPUs.
Implementation espalier_implementation(bool on_host = false);

/// Degrees of the ranks: tensor, context, data, pipeline.
using MeshDegrees = std::tuple<int, int, int, int>;

/// One way to lay a model on a machine.
struct PlanLayout {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;
  int virtual_stages = 1;
  Index micro_batch = 1;   ///< sequences
  Index global_batch = 1;  ///< sequences of a step
  Recompute recompute = Recompute::none;
  double recompute_share = 1;  ///< of the layers that recompute at all
  int zero_stage = 0;
  bool sequence_parallel = false;
  bool data_inside_pipeline = true;  ///< order of ranks: tensor, context, data, pipeline; else pipeline before data
  Precision precision = Precision::bf16;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::vector<Index> blocks_given = {};  ///< of each part of the model, in its order; empty: as even as can be

  int num_devices() const { return tensor * context * data * pipeline; }
  Index num_microbatches() const { return global_batch / (micro_batch * data); }
  AxisPlacement tensor_axis() const { return {tensor, 1}; }
  AxisPlacement context_axis() const { return {context, tensor}; }
  AxisPlacement data_axis() const;  ///< replicas of a shard: data x context
  AxisPlacement pipeline_axis() const;
  int num_parts() const { return pipeline * virtual_stages; }  ///< of the model, in its order
  /// Which of them is a chunk of a stage: chunk c of stage s is part c p + s; the second chunks of zero_bubble_v go the
  /// way back, so that the first stage has both ends of the model.
  int part_of(int stage, int chunk) const;
  bool has_head(int stage) const { return part_of(stage, virtual_stages - 1) + 1 == num_parts(); }
  /// "tensor 8 x data 4 x pipeline 12 (interleaved, 2 virtual stages), micro-batch 1, recompute full, ZeRO-1, bf16".
  std::string text() const;
};

inline MeshDegrees degrees_of(const PlanLayout& layout) {
  return {layout.tensor, layout.context, layout.data, layout.pipeline};
}

/// Reads "data=8,tensor=4,pipeline=2,micro_batch=1,recompute=full,zero=1,..." over `start`. What is not named stays;
/// several virtual_stages without a schedule are interleaved. The words of a config and of `plan --json` are
/// understood, too: "zero_stage=1,order=tp,dp,pp".
/// @param option whose value the text is, for messages
/// @throws Error (usage) with the keys known, for a key that is given twice, and for degrees of more ranks than any
/// machine has devices (most_devices).
PlanLayout parse_plan_layout(const std::string& text, PlanLayout start, const std::string& option = "--layout");

/// The keys that such a text names, in order. @throws Error (usage), as parse_plan_layout().
std::vector<std::string> plan_layout_keys_in(const std::string& text, const std::string& option = "--fix");

}  // namespace espalier
