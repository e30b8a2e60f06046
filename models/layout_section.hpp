// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/value_range.hpp"
#include "models/largest_model.hpp"
#include "models/layout.hpp"
#include "models/model_ranges.hpp"

// The keys of a config that describe a layout: their names, ranges and meanings. `train` reads and writes them, `plan`
// writes them, `diagnose` reads them. `v` is a visitor: KeyReader (io/config/key_reader.hpp) with the functions order()
// and recompute_modes(), or one of training/config/config_visitors.hpp.

namespace espalier {

/// What precision.compute may be.
inline const std::vector<Precision> compute_types = {Precision::fp32, Precision::bf16, Precision::fp16,
                                                     Precision::fp64};

/// Of [batch].
template <class L, class Visitor>
void visit_batch(L& layout, Visitor&& v) {
  constexpr IntegerRange batch_size{1, LargestModel::batch};
  v.integer("global_batch_size", layout.global_batch, batch_size, "sequences per step, over all replicas");
  v.integer("micro_batch_size", layout.micro_batch, batch_size,
            "sequences per forward pass; not given: the largest divisor up to 8");
}

/// [parallel].
template <class L, class Visitor>
void visit_parallel(L& layout, Visitor&& v) {
  constexpr IntegerRange degree{1, most_ranks};
  v.section("parallel", "How the ranks are used: tensor x pipeline x data = number of ranks.");
  v.integer("tensor", layout.tensor, degree, "ranks that share each matrix");
  v.integer("pipeline", layout.pipeline, degree, "stages of consecutive layers");
  v.integer("data", layout.data, {0, degree.max}, "replicas; 0: the remaining ranks");
  v.boolean("sequence_parallel", layout.sequence_parallel, "split norms and residuals over the tensor ranks");
  v.choice("schedule", layout.schedule, schedule_kinds_with_lists(), "order of forward and backward in a pipeline");
  v.integer("virtual_stages", layout.virtual_stages, degree, "model chunks per stage (interleaved)");
  v.choice("assignment", layout.assignment, std::vector{Assignment::consecutive, Assignment::round_robin},
           "layers of a stage; round_robin is for comparison only");
  v.integers("layers_per_stage", layout.layers, ModelRange::layers,
             "layers of each stage, or of each chunk in forward order; []: balanced by measured time");
  v.choice("recompute", layout.recompute, all_recompute_modes(),
           "activations that backward computes again (docs/memory.md)");
  v.recompute_modes("recompute_per_stage", layout.recompute_per_stage, "the same for each stage; []: recompute on all");
  v.integer("zero_stage", layout.zero_stage, {0, most_zero_stage},
            "ZeRO; 1: replicas share the optimizer state; 2: also gradients; 3: also weights");
  v.choice("shard_over", layout.shard_over, std::vector{ShardOver::all, ShardOver::node},
           "which replicas share one copy of what ZeRO shards: all, or those of a node");
  v.boolean("keep_gathered", layout.keep_gathered, "ZeRO-3: gather each layer once a step, not for each use");
  v.order("order", layout.order, "order of the mesh axes in the rank numbers, fastest first");
}

/// Of [precision].
template <class L, class Visitor>
void visit_compute(L& layout, Visitor&& v) {
  v.choice("compute", layout.precision, compute_types, "type of weights and activations; fp64 is for tests");
}

}  // namespace espalier
