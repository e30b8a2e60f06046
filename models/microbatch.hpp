// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// The weight of a token in the loss. For training, `loss` is 1 / (valid tokens of the whole step over all ranks), and
/// `gradient` the same times the loss scale, which keeps small gradients of 16-bit types from vanishing.
struct TokenWeight {
  double loss;
  double gradient;
  TokenWeight(double both) : loss(both), gradient(both) {}  // NOLINT(google-explicit-constructor): no loss scale
  TokenWeight(double loss_, double gradient_) : loss(loss_), gradient(gradient_) {}
};

/// The tokens of one micro-batch on the host: row-major (B, T), N = B*T entries each.
struct TokenBatch {
  const TokenId* inputs;
  const TokenId* targets;  ///< the token that follows each input; negative = ignored
  Index first_sample = 0;  ///< global index of the first sequence, for dropout
  /// Position of each token in the part of its document that lies in its row: 0, 1, ... Null: documents are joined.
  const int* positions = nullptr;
  TokenWeight weight = 1;
};

/// A token of one of the sequences of generation.
struct SequenceToken {
  TokenId token;
  int sequence;  ///< below CacheShape::sequences
  int position;  ///< below CacheShape::length
};

/// Capacity of the cache of keys and values.
struct CacheShape {
  Index sequences = 1;  ///< S
  Index length = 1;     ///< P, positions of each
  Index rows = 1;       ///< tokens taken in at a time, of all sequences; at most `max_decoded`
};
inline constexpr Index max_decoded = 64;

/// Which arrays a micro-batch uses on this rank: an activation slot of the chunk, and a set of gradients. Chunks may
/// share slots (Decoder::shares_slots).
struct ActivationIndex {
  int slot = 0;
  int chunk = 0;
  int gradients = 0;
  ActivationIndex(int slot_ = 0, int chunk_ = 0,
                  int gradients_ = 0)  // NOLINT(google-explicit-constructor): 0 reads well
      : slot(slot_), chunk(chunk_), gradients(gradients_) {}
};

/// What one chunk keeps in memory.
struct ChunkMemory {
  int slots = 1;       ///< micro-batches between forward and the end of backward
  int gradients = 1;   ///< micro-batches between backward_input and backward_weight
  bool split = false;  ///< backward_input and backward_weight are called apart
};

/// What the chunks of a rank keep.
struct ActivationMemory {
  std::vector<ChunkMemory> chunks = std::vector<ChunkMemory>(1);
  int slots_together = 1;           ///< that all chunks ever need at once: at most the sum of theirs
  bool separate_documents = false;  ///< micro-batches have positions of tokens
};

/// Memory for the slots of a rank: each chunk has its own; or, where that takes less, the chunks share as many as they
/// ever hold together, each large enough for a micro-batch of any chunk.
struct SlotMemory {
  Index bytes = 0;
  bool is_shared = false;  ///< by the chunks
};
/// @param slot_bytes of one slot of each chunk
inline SlotMemory slot_memory(const ActivationMemory& memory, const std::vector<Index>& slot_bytes) {
  Index apart = 0;
  for (std::size_t chunk = 0; chunk < slot_bytes.size(); ++chunk)
    apart += memory.chunks.at(chunk).slots * slot_bytes[chunk];
  const Index together = memory.slots_together * *std::max_element(slot_bytes.begin(), slot_bytes.end());
  return together < apart ? SlotMemory{together, true} : SlotMemory{apart, false};
}

/// To run forward alone: one slot, and no gradients of activations.
inline ActivationMemory forward_memory(bool separate_documents = false) {
  return {.chunks = {{.slots = 1, .gradients = 0, .split = true}}, .separate_documents = separate_documents};
}

/// Called after each position of a chunk (ChunkLayers::num_positions) that an operation has passed. A backward that
/// does both parts also calls it between them, with `half_done`, so that messages can be moved on.
using BlockDone = std::function<void(int position)>;
inline constexpr int half_done = -1;

}  // namespace espalier
