// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "models/gpt_chunk.hpp"

namespace espalier {

/// The tokens of one micro-batch on the host: row-major (B, T), N = B*T entries each.
struct TokenBatch {
  const TokenId* inputs;
  const TokenId* targets;  ///< the token that follows each input; negative = ignored
};

/// What a token counts. For training, `loss` is 1 / (valid tokens of the whole step over all ranks), and `gradient` the
/// same times the loss scale, which keeps small gradients of 16-bit types from vanishing.
struct TokenWeight {
  double loss;
  double gradient;
  TokenWeight(double both) : loss(both), gradient(both) {}  // NOLINT(google-explicit-constructor): no loss scale
  TokenWeight(double loss_, double gradient_) : loss(loss_), gradient(gradient_) {}
};

/// Where a micro-batch stands on this rank: the chunk, its activation slot there, its set of gradients.
struct MicrobatchPlace {
  int slot = 0;
  int chunk = 0;
  int gradients = 0;
  MicrobatchPlace(int slot_ = 0, int chunk_ = 0,
                  int gradients_ = 0)  // NOLINT(google-explicit-constructor): 0 reads well
      : slot(slot_), chunk(chunk_), gradients(gradients_) {}
};

/// What one chunk keeps in memory.
struct ChunkMemory {
  int slots = 1;       ///< micro-batches between forward and the end of backward
  int gradients = 1;   ///< micro-batches between backward_input and backward_weight
  bool split = false;  ///< backward_input and backward_weight are called apart
};

/// The part of a GPT-2 class decoder that one rank holds: all of it, or the chunks of a pipeline stage, whole layers or
/// the shards of a tensor axis. Weights live in a ParameterStore, activations in slots of an arena that is laid out
/// before the first step: one slot for each micro-batch in flight, so forwards and backwards of different micro-batches
/// may be interleaved in any order.
///
///     ParameterStore<float> parameters;
///     Gpt<float> model(parameters, config);
///     parameters.allocate();
///     parameters.initialize(exec, seed);
///     model.plan_activations(B, T, slots);
template <class T>
class Gpt {
 public:
  using BlockDone = typename GptChunk<T>::BlockDone;

  /// Declares the parameters of the whole model; `parameters` must outlive it.
  Gpt(ParameterStore<T>& parameters, const GptConfig& config);

  /// Declares those of some chunks, cut over a tensor axis.
  Gpt(ParameterStore<T>& parameters, const GptConfig& config, const std::vector<ChunkLayers>& chunks,
      const TensorParallel<T>& tensor);

  /// Allocates activation slots for micro-batches of (B, T) and the workspace of backward: one entry a chunk.
  void plan_activations(Index micro_batch_size, Index sequence_length, const std::vector<ChunkMemory>& memory);
  void plan_activations(Index micro_batch_size, Index sequence_length, int num_slots);

  /// Bytes that plan_activations would allocate: of the slots, and of the workspace.
  struct ActivationBytes {
    Index slots;
    Index workspace;
  };
  ActivationBytes measure_activations(Index micro_batch_size, Index sequence_length,
                                      const std::vector<ChunkMemory>& memory) const;

  /// Runs a micro-batch through a chunk. The last chunk adds weight.loss * (sum of the token losses) to loss(). Of
  /// `batch` the first chunk reads the inputs, the last one the targets, the others nothing.
  void forward(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, TokenWeight weight,
               const BlockDone& done = {});

  /// The same without leaving what backward needs.
  void evaluate(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, double token_weight);

  /// Adds the gradients of the micro-batch. After each block `done` tells that the gradients of this position of the
  /// chunk are final as far as this micro-batch goes; positions come last to first, in flat order reversed.
  void backward(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});

  /// backward in two: first what the stage before waits for, the weight gradients at any later time.
  void backward_input(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});
  void backward_weight(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});

  /// What passes between chunks, (R, C) each, valid as long as the place is the micro-batch's: the input and output of
  /// forward, the gradient that backward starts from (of the output) and the one it results in (of the input).
  Tensor<T, 2> input(MicrobatchPlace place) const { return slot(place).x; }
  Tensor<T, 2> output(MicrobatchPlace place) const { return chunk(place).output(slot(place)); }
  Tensor<T, 2> output_gradient(MicrobatchPlace place) const { return gradients(place).dx.back(); }
  Tensor<T, 2> input_gradient(MicrobatchPlace place) const { return gradients(place).dx.front(); }

  /// Logits (rows, V) of the last `rows` positions of one sequence of up to T tokens, for generation; the last one
  /// predicts the token that follows. Uses slot 0 of a whole model on one rank.
  Matrix<T> logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows = 1);

  Tensor<double, 0> loss() const { return loss_; }  ///< on the device; set it to zero before the first forward
  const GptConfig& config() const { return config_; }
  const TensorParallel<T>& tensor() const { return *tensor_; }
  const ChunkLayers& layers(int chunk) const { return chunks_.at(static_cast<std::size_t>(chunk)).layers(); }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  int num_blocks(int chunk = 0) const { return layers(chunk).num_blocks(); }  ///< embedding, blocks, head

 private:
  using Slot = typename GptChunk<T>::Slot;
  using Gradients = typename GptChunk<T>::Gradients;
  using Scratch = typename GptChunk<T>::Scratch;
  struct Workspace {
    Scratch scratch;
    std::vector<std::vector<Gradients>> gradients;  // by chunk
    Tensor<T, 2> full;                              // (N, C), under sequence parallelism
  };

  std::vector<std::vector<Slot>> take_slots(Arena& arena, const BlockShape& shape,
                                            const std::vector<ChunkMemory>& memory) const;
  Workspace take_workspace(Arena& arena, const BlockShape& shape, const std::vector<ChunkMemory>& memory) const;
  Scratch take_scratch(Arena& arena, const BlockShape& shape, bool split) const;
  const GptChunk<T>& chunk(MicrobatchPlace place) const { return chunks_[static_cast<std::size_t>(place.chunk)]; }
  const Slot& slot(MicrobatchPlace place) const;
  Slot& slot(MicrobatchPlace place) { return const_cast<Slot&>(std::as_const(*this).slot(place)); }
  const Gradients& gradients(MicrobatchPlace place) const;
  Gradients& gradients(MicrobatchPlace place) { return const_cast<Gradients&>(std::as_const(*this).gradients(place)); }
  void load(const ExecSpace& exec, Slot& slot, const TokenBatch& batch) const;

  GptConfig config_;
  std::unique_ptr<TensorParallel<T>> tensor_;  // the layers keep its address
  std::vector<GptChunk<T>> chunks_;

  BlockShape shape_{};
  Tensor<std::byte, 1> slot_memory_;
  Tensor<std::byte, 1> workspace_memory_;
  std::vector<std::vector<Slot>> slots_;  // by chunk
  Workspace workspace_;
  Tensor<double, 0> loss_;
};

}  // namespace espalier
