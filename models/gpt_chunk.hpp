// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/embedding.hpp"
#include "models/gpt_partition.hpp"
#include "models/head.hpp"
#include "models/microbatch.hpp"
#include "models/transformer_block.hpp"
#include "parallel/queue_graph.hpp"

namespace espalier {

/// The kernels of a chunk's blocks on the arrays of one place of a micro-batch, recorded where the device can (a
/// graph a block, split where a tensor axis exchanges data). Empty: they are started one by one. The first
/// backward_weight of a step overwrites gradients.
struct BlockGraphs {
  std::vector<QueueGraph> forward, backward_input, backward_weight, first_backward_weight;
};

/// The layers of one chunk: forward and backward of a micro-batch through them. Keeps nothing between calls; what
/// backward needs lies in a Slot, what the weight gradients need beside it in Gradients, what one block after the other
/// may overwrite in a Scratch, all given by the caller. Residual is the type of the residual stream.
template <class T, class Residual = T>
class GptChunk {
 public:
  struct Slot {
    Tensor<TokenId, 1> tokens;   ///< (N), where the embedding is
    Tensor<TokenId, 1> targets;  ///< (N), where the head is
    Tensor<Residual, 2> x;       ///< (R, C), the residual stream in front of the first block: embedded, or received
    std::vector<typename TransformerBlock<T, Residual>::Saved> blocks;  ///< y, and what the mode of recomputation keeps
    typename Head<T, Residual>::Saved head;
  };
  /// One serves all chunks of a rank.
  struct Scratch {
    typename TransformerBlock<T, Residual>::Saved block;          ///< what the slots lack
    typename TransformerBlock<T, Residual>::Gradients gradients;  ///< of a backward that is not split
    std::array<Tensor<Residual, 2>, 2> dx;  ///< (R, C) each, of such a backward: the two ends of a block
    typename Head<T, Residual>::Scratch head;
  };
  struct Gradients {
    /// (R, C) each: of the residual stream in front of block i; the last one: behind
    std::vector<Tensor<Residual, 2>> dx;
    std::vector<typename TransformerBlock<T, Residual>::Gradients> blocks;
    std::vector<typename TransformerBlock<T, Residual>::Saved> recomputed;  ///< by block, for the weight part alone
  };
  /// Declares the parameters of the layers; `chunk` is the number among those of this rank.
  GptChunk(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
           const ChunkLayers& layers, int chunk);

  Slot take_slot(Arena& arena, const BlockShape& shape) const;

  /// With `split` each block has gradients of its own, as backward_weight comes later; without, blocks take turns with
  /// those of the scratch.
  Gradients take_gradients(Arena& arena, const BlockShape& shape, const Scratch& scratch, bool split) const;

  /// Through embedding and blocks to output(), and through the norm of the head; the loss is the caller's.
  void forward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, const Scratch& scratch, BlockGraphs& graphs,
               const BlockDone& done) const;
  Tensor<Residual, 2> output(const Slot& slot) const { return slot.blocks.empty() ? slot.x : slot.blocks.back().y; }

  /// Before the first micro-batch of a step, whose weight gradients overwrite what is there, but for those of tables.
  void zero_table_gradients(const ExecSpace& exec) const;

  /// Both parts of backward, block by block. Without a head gradients.dx.back() is given; gradients.dx.front() results.
  void backward(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, Gradients& gradients,
                const Scratch& scratch, BlockGraphs& graphs, bool is_first, const BlockDone& done) const;
  void backward_input(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, Gradients& gradients,
                      const Scratch& scratch, BlockGraphs& graphs, const BlockDone& done) const;
  void backward_weight(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, const Gradients& gradients,
                       const Scratch& scratch, BlockGraphs& graphs, bool is_first, const BlockDone& done) const;

  const ChunkLayers& layers() const { return layers_; }
  const Head<T, Residual>& head() const { return *head_; }

 private:
  typename TransformerBlock<T, Residual>::Saved saved_of(std::size_t block, const Slot& slot,
                                                         const Gradients* gradients, const Scratch& scratch) const;
  void block_backward_input(std::size_t block, const ExecSpace& exec, const BlockShape& shape, const Slot& slot,
                            Gradients& gradients, const Scratch& scratch, BlockGraphs& graphs) const;
  void block_backward_weight(std::size_t block, const ExecSpace& exec, const Slot& slot, const Gradients& gradients,
                             const Scratch& scratch, BlockGraphs& graphs, bool is_first) const;

  ChunkLayers layers_;
  std::optional<VocabParallelEmbedding<T, Residual>> embedding_;
  std::vector<TransformerBlock<T, Residual>> blocks_;
  std::optional<Head<T, Residual>> head_;
};

}  // namespace espalier
