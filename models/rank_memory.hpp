// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/memory_ledger.hpp"
#include "models/layout.hpp"
#include "models/logit_rows.hpp"
#include "models/model_config.hpp"
#include "parallel/reduction/reduction_plan.hpp"
#include "parallel/schedule/unit_actions.hpp"

// Predicts what a rank allocates. `train --dry-run`, the checks before a run and `plan` all use this prediction.

namespace espalier {

/// The types of a run.
struct TrainingTypes {
  ScalarType compute = ScalarType::fp32;
  ScalarType residual = ScalarType::fp32;         ///< of the residual stream: `compute`, or the state type
  std::optional<ScalarType> wire = std::nullopt;  ///< 16-bit type in which gradients are sent; none: the state type

  ScalarType state() const { return compute == ScalarType::fp64 ? ScalarType::fp64 : ScalarType::fp32; }
  bool has_master_weights() const { return compute != state(); }
};
/// Of a precision (core/scalars.hpp); gradients travel in the state type.
template <class P>
constexpr TrainingTypes types_of() {
  return {.compute = scalar_type_of<Compute<P>>(), .residual = scalar_type_of<Residual<P>>()};
}
/// What stands for fp8 and tf32, in which `train` does not run: the types of their activations.
TrainingTypes types_of_precision(Precision precision);

/// Bytes of the states of one element. 16 bits: 2 + 4 + 12, with master weights in fp32; fp32: 4 + 4 + 8.
struct StateBytes {
  Index weights = 0;
  Index gradients = 0;
  Index optimizer = 0;
  Index total() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(const TrainingTypes& types);
/// Of a model, held once.
double all_state_bytes(const ModelConfig& model, Precision precision);

/// What else the memory of a rank depends on.
struct MemoryOptions {
  Index sequence_length = 1024;
  TrainingTypes types = {};
  LogitSizes logits = logits_on_host;
  bool separate_documents = false;
  bool copies_state = false;        ///< for saves behind the training, where the weights lie
  double message_scale = 1;         ///< of [emulate]: see reducer_options()
  std::uint64_t library_bytes = 0;  ///< that libraries of GEMMs and attention hold
};

/// For each stage the bytes by category of the rank with the highest peak. With more than 64 ranks, or very many
/// slices, it is an estimate that may be off by a row of a parameter in each bucket. @pre `asked.layers` is given
std::vector<MemoryByCategory> rank_memory(const ModelConfig& model, const Layout& asked, const MemoryOptions& wanted);

/// The stage with the highest peak, the first of equals. @pre there is one.
int peak_stage(const std::vector<MemoryByCategory>& stages);
/// What it needs.
std::size_t peak_bytes(const std::vector<MemoryByCategory>& stages);

/// How gradients of a stage are reduced. @param message_scale tiny tensors emulate so much larger ones: buckets shrink
/// with them, so that there are as many, and reductions overlap with backward
ReducerOptions reducer_options(const Layout& layout, const std::vector<ChunkLayers>& chunks,
                               std::optional<ScalarType> wire = std::nullopt, double message_scale = 1);

/// Layers of each chunk.
std::vector<Index> layers_of_chunk(const std::vector<ChunkLayers>& chunks);

/// Layers of a stage that are unsharded at a time under ZeRO-2 and -3: one is used, the next is gathered.
UnitBuffers unit_buffers(const Layout& layout, const std::vector<ChunkLayers>& chunks);

/// Bytes of the receive buffer of a rank of a stage for sums over tensor ranks (of the residual stream, and of the loss
/// where it has the head), allocated before the first step.
Index tensor_scratch_bytes(const ModelConfig& model, const Layout& layout, bool has_head, const MemoryOptions& options);

}  // namespace espalier
