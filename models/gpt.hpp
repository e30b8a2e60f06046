// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "models/gpt_stack.hpp"

namespace espalier {

/// The type of the residual stream, of its gradients and of what travels between pipeline stages.
enum class ResidualType {
  compute,  ///< that of weights and activations
  state     ///< fp32 beside a 16-bit compute type: additions along the depth are not rounded to 16 bits
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
  /// Declares the parameters of the whole model; `parameters` must outlive it.
  Gpt(ParameterStore<T>& parameters, const ModelConfig& config);

  /// Declares those of some chunks, cut over a tensor axis.
  Gpt(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
      const TensorParallel<T>& tensor, ResidualType residual = ResidualType::compute);

  /// Allocates activation slots for micro-batches of (B, T) and the workspace of backward.
  void plan_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory);
  void plan_activations(Index micro_batch_size, Index sequence_length, int num_slots);

  /// What plan_activations would allocate.
  ActivationBytes measure_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory) const;

  /// Whether every slot serves any chunk, numbered from 0 to slots_together; else each chunk has its own. The former
  /// where it takes less memory.
  bool shares_slots() const {
    return std::visit([](const auto& stack) { return stack.shares_slots(); }, stack_);
  }

  /// From the next plan_activations() on, the kernels of blocks are recorded where they never wait for other ranks (no
  /// tensor axis), and started a block at a time.
  void use_graphs(bool use) {
    std::visit([use](auto& stack) { stack.use_graphs(use); }, stack_);
  }

  /// Runs a micro-batch through a chunk. The last chunk adds weight.loss * (sum of the token losses) to loss(). Of
  /// `batch` the first chunk reads the inputs, the last one the targets, the others nothing.
  void forward(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, TokenWeight weight,
               const BlockDone& done = {});

  /// The same without leaving what backward needs.
  void evaluate(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, double token_weight);

  /// Before the first micro-batch of a step: its gradients overwrite what is there, so that nobody needs to set all to
  /// zero; those of the tables are set to zero here. Without it every micro-batch adds.
  void begin_gradients(const ExecSpace& exec);

  /// Adds the gradients of the micro-batch. After each block `done` tells that the gradients of this position of the
  /// chunk are final as far as this micro-batch goes; positions come last to first, in flat order reversed.
  void backward(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});

  /// backward in two: first what the stage before waits for, the weight gradients at any later time.
  void backward_input(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});
  void backward_weight(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done = {});

  /// What passes between chunks, the bytes of (R, C), valid as long as the place is the micro-batch's: the input and
  /// output of forward, the gradient that backward starts from (of the output) and the one it results in (of the
  /// input).
  using Message = Tensor<unsigned char, 1>;
  Message input(MicrobatchPlace place) const;
  Message output(MicrobatchPlace place) const;
  Message output_gradient(MicrobatchPlace place) const;
  Message input_gradient(MicrobatchPlace place) const;

  /// Logits (rows, V) of the last `rows` positions of one sequence of up to T tokens, for generation; the last one
  /// predicts the token that follows. Uses slot 0 of a whole model on one rank.
  Matrix<T> logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows = 1);

  Tensor<double, 0> loss() const;  ///< on the device; set it to zero before the first forward
  const ModelConfig& config() const;
  const TensorParallel<T>& tensor() const;
  const ChunkLayers& layers(int chunk) const;
  int num_chunks() const;
  int num_blocks(int chunk = 0) const { return layers(chunk).num_blocks(); }  ///< embedding, blocks, head

 private:
  using Stack = std::conditional_t<has_masters<T>, std::variant<GptStack<T, T>, GptStack<T, State<T>>>,
                                   std::variant<GptStack<T, T>>>;
  Stack stack_;
};

}  // namespace espalier
