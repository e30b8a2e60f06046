// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/embedding.hpp"
#include "models/gpt_partition.hpp"
#include "models/head.hpp"
#include "models/transformer_block.hpp"

namespace espalier {

/// The layers of one chunk: forward and backward of a micro-batch through them. Keeps nothing between calls; what
/// backward needs lies in a Slot, what the weight gradients need beside it in Gradients, both given by the caller.
template <class T>
class GptChunk {
 public:
  struct Slot {
    Tensor<TokenId, 1> tokens;   ///< (N), where the embedding is
    Tensor<TokenId, 1> targets;  ///< (N), where the head is
    Tensor<T, 2> x;              ///< (R, C), the residual stream in front of the first block: embedded, or received
    std::vector<typename TransformerBlock<T>::Saved> blocks;
    typename Head<T>::Saved head;
  };
  struct Gradients {
    std::vector<Tensor<T, 2>> dx;  ///< (R, C) each: of the residual stream in front of block i; the last one: behind
    std::vector<typename TransformerBlock<T>::Gradients> blocks;
    typename Head<T>::Gradients head;
  };
  /// Told after each position of the chunk (see ChunkLayers::num_blocks) that an operation has passed; a backward that
  /// does both parts also tells `half_done` between them: a moment more in which messages can be moved on.
  using BlockDone = std::function<void(int position)>;
  static constexpr int half_done = -1;

  /// Declares the parameters of the layers; `chunk` is the number among those of this rank.
  GptChunk(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const GptConfig& config,
           const ChunkLayers& layers, int chunk);

  Slot take_slot(Arena& arena, const BlockShape& shape) const;

  /// With `split` each block has gradients of its own, as backward_weight comes later; without, blocks take turns.
  Gradients take_gradients(Arena& arena, const BlockShape& shape, bool split) const;

  /// Through embedding and blocks; output() is where it ends.
  void forward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, const BlockDone& done) const;
  Tensor<T, 2> output(const Slot& slot) const { return slot.blocks.empty() ? slot.x : slot.blocks.back().y; }

  /// Both parts of backward, block by block. Without a head gradients.dx.back() is given; gradients.dx.front() results.
  void backward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, Gradients& gradients,
                const BlockDone& done) const;
  void backward_input(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, Gradients& gradients,
                      const BlockDone& done) const;
  void backward_weight(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, const Gradients& gradients,
                       const BlockDone& done) const;

  const ChunkLayers& layers() const { return layers_; }
  const Head<T>& head() const { return *head_; }

 private:
  ChunkLayers layers_;
  std::optional<VocabParallelEmbedding<T>> embedding_;
  std::vector<TransformerBlock<T>> blocks_;
  std::optional<Head<T>> head_;
};

}  // namespace espalier
