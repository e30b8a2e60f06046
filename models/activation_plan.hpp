// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "models/embedding.hpp"
#include "models/head.hpp"
#include "models/layer_partition.hpp"
#include "models/microbatch.hpp"
#include "models/transformer_block.hpp"

namespace espalier {

/// Where each activation of a rank lies: what a micro-batch keeps is in its slot, and what every block overwrites is in
/// one scratch. Recomputation decides which saved arrays a slot does not hold (is_kept).
template <class P>
class ActivationPlan {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;
  using Block = TransformerBlock<P>;
  using Saved = typename Block::Saved;

 public:
  struct Slot {
    Tensor<TokenId, 1> tokens;   ///< (N), where the embedding is
    Tensor<TokenId, 1> targets;  ///< (N), where the head is
    Tensor<int, 1> positions;    ///< (N), of tokens in separate documents
    Stream x;                    ///< (R, C), the residual stream in front of the first block: embedded, or received
    std::vector<Saved> blocks;   ///< all arrays of each block; those that are not kept lie in the scratch
    typename Head<P>::Saved head;
    DropoutContext dropout;  ///< of the micro-batch

    Stream output() const { return blocks.empty() ? x : blocks.back().y; }  ///< (R, C)
  };
  struct Gradients {
    std::vector<Stream> dx;  ///< (R, C) each: of the residual stream in front of block i; the last one: behind
    std::vector<typename Block::Gradients> blocks;
    /// By block, memory for arrays that backward_input computes again and a later backward_weight reads.
    std::vector<Tensor<std::byte, 1>> recomputed;
  };
  struct Scratch {
    Saved block;                          ///< arrays that some chunk does not keep
    typename Block::Gradients gradients;  ///< of a backward that is not split
    std::array<Stream, 2> dx;             ///< (R, C) each, of such a backward: the two ends of a block
    Tensor<int, 1> embedding;             ///< where the embedding is
    typename Head<P>::Scratch head;
    Tensor<T, 2> full;           ///< (N, C), where TensorParallel needs it
    Tensor<State<T>, 2> rotary;  ///< (T, HR), of rotary positions
  };

  ActivationPlan() = default;

  /// Takes all arrays from the arenas of the slots and of the workspace.
  ActivationPlan(Arena& slots, Arena& workspace, const std::vector<ChunkLayers>& chunks, const BlockShape& shape,
                 const ActivationMemory& memory)
      : shape_(shape), separate_documents_(memory.separate_documents) {
    take_scratch(workspace, chunks, memory.chunks);
    gradients_.resize(chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c)
      for (int i = 0; i < memory.chunks.at(c).gradients; ++i)
        gradients_[c].push_back(take_gradients(workspace, chunks[c], memory.chunks[c].split));
    if (shape.rotary > 0)
      scratch_.rotary = workspace.take<State<T>>(shape.attention.sequence_length, shape.rotary);
    if (needs_full(shape))
      scratch_.full = workspace.take<T>(shape.tokens(), shape.channels);
    take_slots(slots, chunks, memory);
  }

  /// Whether TensorParallel needs the full form of the stream: under sequence parallelism, or for a stream of another
  /// type.
  static bool needs_full(const BlockShape& shape) { return shape.sequence_parallel || !std::is_same_v<T, Residual<P>>; }

  /// Whether slots of the same number of all chunks lie in the same memory.
  bool shares_slots() const { return shares_slots_; }

  Slot& slot(ActivationIndex at) { return slots_.at(to_size(at.chunk)).at(to_size(at.slot)); }
  const Slot& slot(ActivationIndex at) const { return slots_.at(to_size(at.chunk)).at(to_size(at.slot)); }
  Gradients& gradients(ActivationIndex at) { return gradients_.at(to_size(at.chunk)).at(to_size(at.gradients)); }
  const Gradients& gradients(ActivationIndex at) const {
    return gradients_.at(to_size(at.chunk)).at(to_size(at.gradients));
  }
  Scratch& scratch() { return scratch_; }

  /// The arrays of a block as its backward finds them, or fills them again.
  Saved saved_in_backward(ActivationIndex at, std::size_t block) const {
    Saved saved = slot(at).blocks[block];
    if (const auto& recomputed = gradients(at).recomputed; !recomputed.empty()) {
      Arena arena(recomputed[block].data(), static_cast<Index>(recomputed[block].extent(0)));
      take_read_later(arena, saved);
      saved.norm2.x = saved.h;
    }
    return saved;
  }

 private:
  void take_read_later(Arena& arena, Saved& saved) const {
    TakeArrays take(arena, [](const SavedArray& array) { return array.read_by != ReadBy::backward_input; });
    saved.each(take, shape_);
  }

  // What the chunks of a rank need while one of them computes; a chunk that recomputes more needs more.
  void take_scratch(Arena& arena, const std::vector<ChunkLayers>& chunks, const std::vector<ChunkMemory>& memory) {
    TakeArrays take(arena, [&](const SavedArray& array) {
      return std::any_of(chunks.begin(), chunks.end(),
                         [&](const ChunkLayers& chunk) { return !is_kept(array, chunk.recompute); });
    });
    scratch_.block.each(take, shape_);
    if (!std::all_of(memory.begin(), memory.end(), [](const ChunkMemory& chunk) { return chunk.split; })) {
      scratch_.gradients = Block::Gradients::take(arena, shape_);
      for (Stream& dx : scratch_.dx)
        dx = arena.take<Residual<P>>(shape_.rows, shape_.channels);
    }
    if (chunks.front().embedding)
      scratch_.embedding = VocabParallelEmbedding<P>::take_scratch(arena, shape_);
    if (chunks.back().head)
      scratch_.head = Head<P>::take_scratch(arena, shape_);
  }

  // With `split` each block has gradients of its own, as backward_weight comes later; without, blocks take turns with
  // those of the scratch.
  Gradients take_gradients(Arena& arena, const ChunkLayers& chunk, bool split) const {
    Gradients gradients;
    const auto count = static_cast<std::size_t>(chunk.count);
    for (std::size_t i = 0; i <= count; ++i) {  // a message is sent or received while others work
      const bool is_message = (i == 0 && !chunk.embedding) || (i == count && !chunk.head);
      gradients.dx.push_back(split || is_message ? arena.take<Residual<P>>(shape_.rows, shape_.channels)
                                                 : scratch_.dx[i % 2]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      gradients.blocks.push_back(split ? Block::Gradients::take(arena, shape_) : scratch_.gradients);
      if (split && Block::recomputes_for_input(chunk.recompute)) {
        Arena measured;
        Saved saved;
        take_read_later(measured, saved);
        gradients.recomputed.push_back(arena.take_bytes_of(measured));
      }
    }
    return gradients;
  }

  Slot take_slot(Arena& arena, const ChunkLayers& chunk) const {
    Slot slot;
    if (chunk.embedding)
      slot.tokens = arena.take<TokenId>(shape_.tokens());
    if (separate_documents_)
      slot.positions = arena.take<int>(shape_.tokens());
    slot.x = arena.take<Residual<P>>(shape_.rows, shape_.channels);
    TakeArrays take(arena, [&](const SavedArray& array) { return is_kept(array, chunk.recompute); });
    Stream x = slot.x;
    for (Index i = 0; i < chunk.count; ++i) {
      Saved saved = scratch_.block;
      saved.each(take, shape_);
      saved.y = arena.take<Residual<P>>(shape_.rows, shape_.channels);
      saved.norm1.x = x;
      saved.norm2.x = saved.h;
      x = saved.y;
      slot.blocks.push_back(saved);
    }
    if (chunk.head) {
      slot.targets = arena.take<TokenId>(shape_.tokens());
      slot.head = Head<P>::take_saved(arena, shape_);
    }
    return slot;
  }

  void take_slots(Arena& arena, const std::vector<ChunkLayers>& chunks, const ActivationMemory& memory) {
    std::vector<Index> slot_bytes;
    Arena largest;
    for (const ChunkLayers& chunk : chunks) {
      Arena one;
      take_slot(one, chunk);
      slot_bytes.push_back(one.used_bytes());
      if (one.used_bytes() > largest.used_bytes())
        largest = one;
    }
    shares_slots_ = slot_memory(memory, slot_bytes).is_shared;
    slots_.resize(chunks.size());
    if (shares_slots_) {
      for (int i = 0; i < memory.slots_together; ++i) {
        const Tensor<std::byte, 1> bytes = arena.take_bytes_of(largest);
        for (std::size_t c = 0; c < chunks.size(); ++c) {
          Arena shared(bytes.data(), largest.used_bytes());
          slots_[c].push_back(take_slot(shared, chunks[c]));
        }
      }
      return;
    }
    for (std::size_t c = 0; c < chunks.size(); ++c)
      for (int i = 0; i < memory.chunks[c].slots; ++i)
        slots_[c].push_back(take_slot(arena, chunks[c]));
  }

  BlockShape shape_{};
  bool separate_documents_ = false;
  bool shares_slots_ = false;
  std::vector<std::vector<Slot>> slots_;           // by chunk and number
  std::vector<std::vector<Gradients>> gradients_;  // by chunk and number
  Scratch scratch_;
};

}  // namespace espalier
