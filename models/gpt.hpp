// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "models/embedding.hpp"
#include "models/head.hpp"
#include "models/transformer_block.hpp"

namespace espalier {

/// The tokens of one micro-batch on the host: row-major (B, T), N = B*T entries each.
struct TokenBatch {
  const TokenId* inputs;
  const TokenId* targets;  ///< the token that follows each input; negative = ignored
};

/// A GPT-2 class decoder. Weights live in a ParameterStore, activations in slots of an arena that is laid out before
/// the first step: one slot for each micro-batch in flight, so forwards and backwards of different micro-batches may be
/// interleaved in any order.
///
///     ParameterStore<float> parameters;
///     Gpt<float> model(parameters, config);
///     parameters.allocate();
///     parameters.initialize(exec, seed);
///     model.plan_activations(B, T, slots);
template <class T>
class Gpt {
 public:
  /// Declares the parameters; `parameters` must outlive the model.
  Gpt(ParameterStore<T>& parameters, const GptConfig& config);

  /// Allocates activation slots for micro-batches of (B, T) and the workspace of backward.
  void plan_activations(Index micro_batch_size, Index sequence_length, int num_slots);

  /// Bytes that plan_activations would allocate: of the slots, and of the workspace.
  struct ActivationBytes {
    Index slots;
    Index workspace;
  };
  ActivationBytes measure_activations(Index micro_batch_size, Index sequence_length, int num_slots) const;

  /// Runs micro-batch `batch` into `slot` and adds loss_scale * (sum of its token losses) to loss(). For training,
  /// `loss_scale` is 1 / (valid tokens of the whole step over all ranks), and so is the scale of the gradients.
  void forward(const ExecSpace& exec, int slot, const TokenBatch& batch, double loss_scale);

  /// The same without leaving what backward needs.
  void evaluate(const ExecSpace& exec, int slot, const TokenBatch& batch, double loss_scale);

  /// Adds the gradients of the micro-batch in `slot`. After each block, `on_block_done(block)` tells that the gradients
  /// of this block are final as far as this micro-batch goes; blocks come last to first, in flat order reversed.
  void backward(const ExecSpace& exec, int slot, const std::function<void(int block)>& on_block_done = {});

  /// Logits (T, V) of one sequence of up to T tokens, for generation; row t predicts token t + 1. Uses slot 0.
  Matrix<T> logits(const ExecSpace& exec, const std::vector<TokenId>& tokens);

  Tensor<double, 0> loss() const { return loss_; }  ///< on the device; set it to zero before the first forward
  const GptConfig& config() const { return config_; }
  int num_blocks() const { return static_cast<int>(blocks_.size()) + 2; }  ///< embedding, blocks, head

 private:
  struct Slot {
    Tensor<TokenId, 1> tokens;   // (N)
    Tensor<TokenId, 1> targets;  // (N)
    Tensor<T, 2> embedded;       // (N, C)
    std::vector<typename TransformerBlock<T>::Saved> blocks;
    typename Head<T>::Saved head;
  };
  struct Workspace {
    typename TransformerBlock<T>::Gradients block;
    typename Head<T>::Gradients head;
    Tensor<T, 2> dx[2];  // (N, C): the gradient of the residual stream, before and after a block
  };

  Slot take_slot(Arena& arena, const AttentionShape& shape) const;
  Workspace take_workspace(Arena& arena, const AttentionShape& shape) const;
  AttentionShape attention_shape(Index batch, Index sequence_length) const;
  Slot& load(const ExecSpace& exec, int slot, const TokenBatch& batch);
  void run_layers(const ExecSpace& exec, Slot& slot);

  GptConfig config_;
  Embedding<T> embedding_;
  std::vector<TransformerBlock<T>> blocks_;
  Head<T> head_;

  AttentionShape shape_{};
  Tensor<std::byte, 1> slot_memory_;
  Tensor<std::byte, 1> workspace_memory_;
  std::vector<Slot> slots_;
  Workspace workspace_;
  Tensor<double, 0> loss_;
};

}  // namespace espalier
