// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "models/gpt_chunk.hpp"
#include "models/microbatch.hpp"

namespace espalier {

/// Bytes that activations need: of the slots, and of the workspace.
struct ActivationBytes {
  Index slots;
  Index workspace;
};

/// Gpt of one type of the residual stream; see there.
template <class T, class Residual>
class GptStack {
 public:
  GptStack(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
           const TensorParallel<T>& tensor);

  void plan_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory);
  ActivationBytes measure_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory) const;
  bool shares_slots() const { return slots_.shared; }
  void use_graphs(bool use) { uses_graphs_ = use; }

  void forward(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, TokenWeight weight,
               const BlockDone& done);
  void evaluate(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, double token_weight);
  void begin_gradients(const ExecSpace& exec);
  void backward(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done);
  void backward_input(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done);
  void backward_weight(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done);

  Tensor<Residual, 2> input(MicrobatchPlace place) const { return slot(place).x; }
  Tensor<Residual, 2> output(MicrobatchPlace place) const { return chunk(place).output(slot(place)); }
  Tensor<Residual, 2> output_gradient(MicrobatchPlace place) const { return gradients(place).dx.back(); }
  Tensor<Residual, 2> input_gradient(MicrobatchPlace place) const { return gradients(place).dx.front(); }

  Matrix<T> logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows);

  Tensor<double, 0> loss() const { return loss_; }
  const ModelConfig& config() const { return config_; }
  const TensorParallel<T>& tensor() const { return *tensor_; }
  const ChunkLayers& layers(int chunk) const { return chunks_.at(static_cast<std::size_t>(chunk)).layers(); }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }

 private:
  using Slot = typename GptChunk<T, Residual>::Slot;
  using Gradients = typename GptChunk<T, Residual>::Gradients;
  using Scratch = typename GptChunk<T, Residual>::Scratch;
  struct Slots {
    bool shared = false;                      // those of the same number lie in the same memory
    std::vector<std::vector<Slot>> by_chunk;  // and number
  };
  struct Workspace {
    Scratch scratch;
    std::vector<std::vector<Gradients>> gradients;  // by chunk
    Tensor<T, 2> full;                              // (N, C), where TensorParallel needs it
  };

  Slots take_slots(Arena& arena, const BlockShape& shape, const StackMemory& memory) const;
  Workspace take_workspace(Arena& arena, const BlockShape& shape, const std::vector<ChunkMemory>& memory) const;
  Scratch take_scratch(Arena& arena, const BlockShape& shape, bool split) const;
  const GptChunk<T, Residual>& chunk(MicrobatchPlace place) const {
    return chunks_[static_cast<std::size_t>(place.chunk)];
  }
  const Slot& slot(MicrobatchPlace place) const;
  Slot& slot(MicrobatchPlace place);
  const Gradients& gradients(MicrobatchPlace place) const;
  Gradients& gradients(MicrobatchPlace place);
  BlockGraphs& graphs(MicrobatchPlace place);
  bool takes_first(MicrobatchPlace place);
  void load(const ExecSpace& exec, Slot& slot, const TokenBatch& batch) const;

  ModelConfig config_;
  std::unique_ptr<TensorParallel<T>> tensor_;  // the layers keep its address
  std::vector<GptChunk<T, Residual>> chunks_;
  std::vector<bool> begins_gradients_;  // by chunk: its next micro-batch overwrites what is there

  BlockShape shape_{};
  Tensor<std::byte, 1> slot_memory_;
  Tensor<std::byte, 1> workspace_memory_;
  Slots slots_;
  Workspace workspace_;
  bool uses_graphs_ = false;
  std::map<std::array<int, 3>, BlockGraphs> graphs_;  // by chunk, slot and gradients
  Tensor<double, 0> loss_;
};

}  // namespace espalier
