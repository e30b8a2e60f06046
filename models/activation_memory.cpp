// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/activation_memory.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/with_scalar_type.hpp"
#include "models/activation_plan.hpp"
#include "parallel/schedule/pipeline_slots.hpp"

namespace espalier {
namespace {

ChunkMemory chunk_memory(const ChunkLayers& chunk, int slots, int split) {
  // Without the split two sets take turns where gradients are sent, so that one may be on its way.
  const bool sends = !chunk.embedding;
  return {.slots = std::max(1, slots), .gradients = split > 0 ? split : sends ? 2 : 1, .split = split > 0};
}

template <class V, class... Extents>
Index array_size(Extents... extents) {
  Arena arena;
  arena.take<V>(extents...);
  return arena.used_bytes();
}

template <class P, class Chosen>
Index saved_bytes(const BlockShape& shape, const Chosen& chosen) {
  Arena arena;
  TakeArrays take(arena, chosen);
  typename TransformerBlock<P>::Saved().each(take, shape);
  return arena.used_bytes();
}

template <class Take>
Index bytes_of(const Take& take) {
  Arena arena;
  take(arena);
  return arena.used_bytes();
}

template <class P>
ActivationRecording recorded(const BlockShape& shape) {
  using Block = TransformerBlock<P>;
  ActivationRecording all;
  all.stream = array_size<Residual<P>>(shape.rows, shape.channels);
  for (const Recompute mode : all_recompute_modes()) {
    const auto kept = [=](const SavedArray& array) { return is_kept(array, mode); };
    const Index later =
        saved_bytes<P>(shape, [](const SavedArray& array) { return array.read_by != ReadBy::backward_input; });
    all.block.at(static_cast<std::size_t>(mode)) = {
        .kept = saved_bytes<P>(shape, kept) + all.stream,
        .recomputed = saved_bytes<P>(shape, [=](const SavedArray& array) { return !kept(array); }),
        .read_later = Block::recomputes_for_input(mode) ? later : 0};
  }
  all.gradients = bytes_of([&](Arena& arena) { Block::Gradients::take(arena, shape); });
  if (ActivationPlan<P>::needs_full(shape))
    all.full = array_size<Compute<P>>(shape.tokens(), shape.channels);
  if (shape.rotary > 0)
    all.rotary = array_size<State<Compute<P>>>(shape.attention.sequence_length, shape.rotary);
  all.tokens = array_size<TokenId>(shape.tokens());
  all.positions = array_size<int>(shape.tokens());
  all.embedding_scratch = bytes_of([&](Arena& arena) { VocabParallelEmbedding<P>::take_scratch(arena, shape); });
  all.head_scratch = bytes_of([&](Arena& arena) { Head<P>::take_scratch(arena, shape); });
  all.head_saved = bytes_of([&](Arena& arena) { Head<P>::take_saved(arena, shape); });
  return all;
}

}  // namespace

ActivationMemory activation_memory(const PipelineSchedule& schedule, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents) {
  ActivationMemory memory{
      .chunks = {}, .slots_together = std::max(1, slots_needed(schedule)), .separate_documents = separate_documents};
  for (int chunk = 0; chunk < static_cast<int>(chunks.size()); ++chunk)
    memory.chunks.push_back(chunk_memory(chunks[static_cast<std::size_t>(chunk)], slots_needed(schedule, chunk),
                                         pending_weights_needed(schedule, chunk)));
  return memory;
}

ActivationMemory activation_memory(const PipelineShape& shape, int stage, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents) {
  const PipelineSlots slots = pipeline_slots(shape, stage);
  ActivationMemory memory{
      .chunks = {}, .slots_together = std::max(1, slots.together), .separate_documents = separate_documents};
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk)
    memory.chunks.push_back(chunk_memory(chunks[chunk], slots.chunks.at(chunk), slots.waiting_weights));
  return memory;
}

ActivationRecording record_activations(const BlockShape& shape, ScalarType compute, ScalarType residual) {
  return with_mixed_precision(compute, residual != compute, [&]<class P>() { return recorded<P>(shape); });
}

ActivationBytes activation_bytes(const ActivationRecording& recording, const std::vector<ChunkLayers>& chunks,
                                 const ActivationMemory& memory) {
  const auto of_block = [&](const ChunkLayers& chunk) -> const ActivationRecording::OfBlock& {
    return recording.block.at(static_cast<std::size_t>(chunk.recompute));
  };
  Index recomputed = 0;  // what the chunks need while one of them computes; one that recomputes more needs more
  Index gradients = 0;
  bool all_split = true;
  std::vector<Index> slots;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const ChunkLayers& chunk = chunks[c];
    const ChunkMemory& kept = memory.chunks.at(c);
    recomputed = std::max(recomputed, of_block(chunk).recomputed);
    all_split = all_split && kept.split;
    const Index messages =
        chunk.count == 0 ? (chunk.embedding && chunk.head ? 0 : 1) : (chunk.embedding ? 0 : 1) + (chunk.head ? 0 : 1);
    gradients += kept.gradients * (kept.split ? (chunk.count + 1) * recording.stream +
                                                    chunk.count * (recording.gradients + of_block(chunk).read_later)
                                              : messages * recording.stream);
    slots.push_back(recording.stream + chunk.count * of_block(chunk).kept + (chunk.embedding ? recording.tokens : 0) +
                    (memory.separate_documents ? recording.positions : 0) +
                    (chunk.head ? recording.tokens + recording.head_saved : 0));
  }
  return {.slots = slot_memory(memory, slots).bytes,
          .workspace = recomputed + (all_split ? 0 : recording.gradients + 2 * recording.stream) + gradients +
                       (chunks.front().embedding ? recording.embedding_scratch : 0) +
                       (chunks.back().head ? recording.head_scratch : 0) + recording.rotary + recording.full};
}

}  // namespace espalier
