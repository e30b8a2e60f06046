// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// What a token counts. For training, `loss` is 1 / (valid tokens of the whole step over all ranks), and `gradient` the
/// same times the loss scale, which keeps small gradients of 16-bit types from vanishing.
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
  /// Of each token in its document, as far as it lies in its row: 0, 1, ... from the begin of a row or document.
  /// Null: documents are joined.
  const int* positions = nullptr;
  TokenWeight weight = 1;
};

/// A token of one of the sequences that generation grows.
struct PlacedToken {
  TokenId token;
  int sequence;  ///< below CacheShape::sequences
  int position;  ///< below CacheShape::length
};

/// What generation has room for.
struct CacheShape {
  Index sequences = 1;  ///< S
  Index length = 1;     ///< P, positions of each
  Index rows = 1;       ///< tokens taken in at a time, of all sequences; at most `most_decoded`
};
inline constexpr Index most_decoded = 64;

/// Which arrays a micro-batch uses on this rank: of the chunk, an activation slot (its own, or one of the rank where
/// chunks share them, see Decoder::shares_slots) and a set of gradients.
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

/// To run forward alone: one slot, and no gradients of activations, which belong to backward parts that nobody calls.
inline ActivationMemory forward_memory(bool separate_documents = false) {
  return {.chunks = {{.slots = 1, .gradients = 0, .split = true}}, .separate_documents = separate_documents};
}

/// Told after each position of a chunk (see ChunkLayers::num_blocks) that an operation has passed; a backward that does
/// both parts also tells `half_done` between them: a moment more in which messages can be moved on.
using BlockDone = std::function<void(int position)>;
inline constexpr int half_done = -1;

}  // namespace espalier
