// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/precision.hpp"
#include "core/scalars.hpp"
#include "models/layer_partition.hpp"
#include "models/recompute.hpp"
#include "parallel/mesh/mesh_layout.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// The replicas over which ZeRO shards: all, or those of a node (hybrid sharding).
enum class ShardOver { all, node };
inline const char* to_string(ShardOver over) { return over == ShardOver::all ? "all" : "node"; }

/// One way to lay a model and a step's batch on ranks: what a config asks for, `plan` estimates, a run has and its
/// records store. A config may leave degrees and layers open (training/config/run_layout.hpp fills them in).
inline constexpr int most_zero_stage = 3;

struct Layout {
  int tensor = 1;          ///< ranks that share each matrix
  int context = 1;         ///< ranks that share each sequence; above the tensor ranks. Only the planner knows them
  int data = 1;            ///< replicas; 0 in a config: what is left
  int pipeline = 1;        ///< stages
  int virtual_stages = 1;  ///< chunks of a stage
  Index micro_batch = 1;   ///< sequences
  Index global_batch = 1;  ///< sequences of a step
  Recompute recompute = Recompute::none;
  std::vector<Recompute> recompute_per_stage = {};  ///< empty: `recompute` on all
  int zero_stage = 0;
  ShardOver shard_over = ShardOver::all;
  int shard_replicas = 0;        ///< consecutive replicas that share one copy; 0: all. Of a run, not of a config
  int first_level_replicas = 0;  ///< of a run, too: see MeshLayout
  bool keep_gathered = false;    ///< ZeRO-3: each layer is gathered once a step
  bool sequence_parallel = false;
  AxisOrder order = data_first_order;
  Precision precision = Precision::bf16;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  Assignment assignment = Assignment::consecutive;
  std::vector<Index> layers = {};  ///< of each part of the model, in its order; empty: open
  int kv_copies = 1;               ///< of the model, not of a config: see MeshLayout

  int num_devices() const { return tensor * context * data * pipeline; }
  Index num_microbatches() const { return global_batch / (micro_batch * data); }  ///< of a replica. @pre data is known
  /// Ranks whose gradients are summed: replicas, and the context ranks of each.
  int gradient_ranks() const { return data * context; }
  /// The ZeRO stage that acts: one rank has nobody to share with.
  int acting_zero_stage() const { return gradient_ranks() > 1 ? zero_stage : 0; }
  /// Whether sequence parallelism acts: one tensor rank has nobody to split rows with.
  bool splits_rows() const { return sequence_parallel && tensor > 1; }
  /// Whether ZeRO shards among the replicas of a node alone (hybrid sharding).
  bool shards_within_nodes() const { return shard_over == ShardOver::node && acting_zero_stage() > 0; }
  /// Replicas over which ZeRO shards.
  int shards() const { return zero_stage == 0 ? 1 : shard_replicas > 0 ? shard_replicas : data; }
  /// How often in a step the gradients of a layer are summed: after every micro-batch from ZeRO-2 on.
  Index sums_per_step() const { return zero_stage >= 2 ? num_microbatches() : 1; }
  /// How often its weights are gathered: by ZeRO-3 for each forward and each backward.
  Index gathers_per_step() const {
    return zero_stage == 3 && !keep_gathered ? 2 * num_microbatches() : zero_stage > 0 ? 1 : 0;
  }
  int num_parts() const { return pipeline * virtual_stages; }  ///< of the model, in its order
  Recompute recompute_of(int stage) const;

  /// The part of the model that chunk c of stage s is: c p + s; of zero_bubble_v the second chunks go the way back, so
  /// that the first stage has both ends of the model.
  int part_of(int stage, int chunk) const;
  int stage_of_part(int part) const;
  /// Layers of each stage, all its chunks together. @pre `layers` is known
  std::vector<Index> layers_of_stages() const;
  bool has_head(int stage) const { return part_of(stage, virtual_stages - 1) + 1 == num_parts(); }

  /// Do replicas lie nearer to each other than stages?
  bool data_inside_pipeline() const;

  /// The ranks, without context ranks.
  MeshLayout mesh() const {
    return {.degrees = PerAxis::degrees(tensor, data, pipeline),
            .order = order,
            .kv_copies = kv_copies,
            .shard_replicas = zero_stage > 0 ? shard_replicas : 0,
            .first_level_replicas = first_level_replicas};
  }

  /// What decides the lists of all stages. `ties_embeddings` is of the model, and decides about tied_reduce alone.
  PipelineShape pipeline_shape(bool ties_embeddings = true) const;

  /// What lies where: [stage][chunk]. @pre `layers` is given
  std::vector<std::vector<ChunkLayers>> chunks() const;

  /// "tensor 8 x data 4 x pipeline 12 (interleaved, 2 virtual stages), micro-batch 1, recompute full, ZeRO-1, bf16".
  std::string text() const;

  /// Without batch and precision, and only what is switched on: "tensor 2 x data 1 x pipeline 4, 1f1b, recompute full
  /// on stage 0".
  std::string short_text() const;

  bool operator==(const Layout&) const = default;
};

}  // namespace espalier
