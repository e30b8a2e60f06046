// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "models/activation_plan.hpp"
#include "parallel/stream_graph.hpp"

namespace espalier {

/// Bytes that activations need: of the slots, and of the workspace.
struct ActivationBytes {
  Index slots;
  Index workspace;
};

/// The part of a decoder that one rank holds: all of it, or the chunks of a pipeline stage, whole layers or the shards
/// of a tensor axis. Weights live in a ParameterStore, activations in slots of an arena that is laid out before the
/// first step: one slot for each micro-batch in flight, so forwards and backwards of different micro-batches may be
/// interleaved in any order. P is the precision (core/scalars.hpp).
///
///     ParameterStore<float> parameters;
///     Decoder<Fp32> model(parameters, config);
///     parameters.allocate();
///     parameters.initialize(exec, seed);
///     model.plan_activations(B, T, slots);
template <class P>
class Decoder {
  using T = Compute<P>;

 public:
  /// Declares the parameters of the whole model; `parameters` must outlive it.
  Decoder(ParameterStore<T>& parameters, const ModelConfig& config);

  /// Declares those of some chunks, cut over a tensor axis.
  Decoder(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
          const TensorParallel<T>& tensor);

  /// Allocates activation slots for micro-batches of (B, T) and the workspace of backward.
  void plan_activations(Index micro_batch_size, Index sequence_length, const ActivationMemory& memory);
  void plan_activations(Index micro_batch_size, Index sequence_length, int num_slots);

  /// What plan_activations would allocate.
  ActivationBytes measure_activations(Index micro_batch_size, Index sequence_length,
                                      const ActivationMemory& memory) const;

  /// Whether every slot serves any chunk, numbered from 0 to slots_together; else each chunk has its own. The former
  /// where it takes less memory.
  bool shares_slots() const { return plan_.shares_slots(); }

  /// From the next plan_activations() on, the kernels of blocks are recorded where they never wait for other ranks (no
  /// tensor axis), and started a block at a time.
  void use_graphs(bool use) { uses_graphs_ = use; }

  /// What dropout depends on besides the samples.
  void set_dropout_seed(std::uint64_t seed) { dropout_seed_ = seed; }

  /// The gradients of layers are overwritten by each micro-batch, not added to: somebody else sums them (ZeRO-2).
  void overwrite_layer_gradients(bool overwrites) { overwrites_layer_gradients_ = overwrites; }

  /// Runs a micro-batch through a chunk. The last chunk adds weight.loss * (sum of the token losses) to loss(). The
  /// first chunk reads the inputs of `batch`, the last one the targets, all of them first_sample.
  void forward(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, TokenWeight weight,
               const BlockDone& done = {});

  /// The same without dropout, and without leaving what backward needs.
  void evaluate(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, double token_weight,
                const BlockDone& done = {});

  /// After evaluate() at 0 of the last chunk: logits (1, V/tp) of what follows the token in this row of (B T).
  Matrix<T> evaluated_logits(const ExecSpace& exec, Index row);

  /// Before the first micro-batch of a step: its gradients overwrite what is there, so that nobody needs to set all to
  /// zero; those of the tables are set to zero here. Without it every micro-batch adds.
  void begin_gradients(const ExecSpace& exec);

  /// Adds the gradients of the micro-batch. After each block `done` tells that the gradients of this position of the
  /// chunk are final as far as this micro-batch goes; positions come last to first, in flat order reversed.
  void backward(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});

  /// backward in two: first what the stage before waits for, the weight gradients at any later time.
  void backward_input(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});
  void backward_weight(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});

  /// What passes between chunks, the bytes of (R, C), valid as long as the arrays are the micro-batch's: the input and
  /// output of forward, the gradient that backward starts from (of the output) and the one it results in (of the
  /// input).
  using Message = Tensor<unsigned char, 1>;
  Message input(ActivationIndex at) const { return bytes_of(plan_.slot(at).x); }
  Message output(ActivationIndex at) const { return bytes_of(plan_.slot(at).output()); }
  Message output_gradient(ActivationIndex at) const { return bytes_of(plan_.gradients(at).dx.back()); }
  Message input_gradient(ActivationIndex at) const { return bytes_of(plan_.gradients(at).dx.front()); }

  /// Logits (rows, V) of the last `rows` positions of one sequence of up to T tokens; the last one predicts the token
  /// that follows. Uses slot 0 of a whole model on one rank. @param positions of the tokens, in separate documents
  Matrix<T> logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows = 1,
                   const std::vector<int>& positions = {});

  /// For generation, instead of plan_activations(): room for the keys and values of sequences that grow, and for some
  /// tokens at a time. On one stage.
  void plan_cache(const CacheShape& shape);
  Index cache_bytes(const CacheShape& shape) const;  ///< that plan_cache() allocates

  /// Appends tokens to their sequences in the cache. Tokens of a sequence come in order of position, and its earlier
  /// positions are cached already. @returns logits (count, V/tp) of what follows each of the last `count` tokens, valid
  /// until the next call.
  Matrix<T> decode(const ExecSpace& exec, std::span<const PlacedToken> tokens, Index count);

  Tensor<double, 0> loss() const { return loss_; }  ///< on the device; set it to zero before the first forward
  const ModelConfig& config() const { return config_; }
  const TensorParallel<T>& tensor() const { return *tensor_; }
  const ChunkLayers& layers(int chunk) const { return chunks_.at(static_cast<std::size_t>(chunk)).layers; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  int num_blocks(int chunk = 0) const { return layers(chunk).num_blocks(); }  ///< embedding, blocks, head

 private:
  using Stream = Tensor<Residual<P>, 2>;
  using Slot = typename ActivationPlan<P>::Slot;
  using Chunk = DecoderChunk<P>;

  /// The kernels of a chunk's blocks on the arrays of one ActivationIndex, recorded where the device can: a graph a
  /// block. Empty: they are started one by one. The first backward_weight of a step overwrites gradients.
  struct BlockGraphs {
    std::vector<StreamGraph> forward, backward_input, backward_weight, first_backward_weight;
  };

  /// What generation keeps of its sequences, and where the rows stand that are taken in.
  struct Cache {
    std::vector<Tensor<T, 3>> layers;  ///< (S, P, 2 KV), by block
    Tensor<State<T>, 2> rotary;        ///< (P, R)
    CachedRows rows;                   ///< for the most rows
  };

  static Message bytes_of(const Stream& rows) {
    return Message(reinterpret_cast<unsigned char*>(rows.data()), rows.size() * sizeof(Residual<P>));
  }
  ActivationPlan<P> make_plan(Arena& slots, Arena& workspace, const BlockShape& shape,
                              const ActivationMemory& memory) const;
  int head_table(ParameterStore<T>& parameters, const Chunk& chunk, Placement placement) const;
  Chunk& chunk(ActivationIndex at) { return chunks_.at(static_cast<std::size_t>(at.chunk)); }
  BlockGraphs& graphs(ActivationIndex at);
  State<T> beta(ActivationIndex at);
  BlockShape shape_of(const Slot& slot) const {
    BlockShape shape = shape_;
    shape.dropout = slot.dropout;
    return shape;
  }
  void load(const ExecSpace& exec, const Slot& slot, const TokenBatch& batch) const;
  void forward_to_norm(const ExecSpace& exec, ActivationIndex at, const BlockDone& done);
  bool is_whole_model() const;
  void free_activations();
  ActivationBytes measure_rows(Index rows) const;
  Cache take_cache(Arena& arena, const CacheShape& shape) const;
  void plan_rows(Index rows);
  void block_backward_input(std::size_t block, const ExecSpace& exec, ActivationIndex at);
  void block_backward_weight(std::size_t block, const ExecSpace& exec, ActivationIndex at, State<T> beta);

  ModelConfig config_;
  std::unique_ptr<TensorParallel<T>> tensor_;  // the layers keep its address
  std::unique_ptr<RotaryTable<T>> rotary_;     // and this one's
  std::vector<Chunk> chunks_;
  std::vector<bool> begins_gradients_;  // by chunk: its next micro-batch overwrites what is there
  bool overwrites_layer_gradients_ = false;

  BlockShape shape_{};
  Tensor<std::byte, 1> slot_memory_;
  Tensor<std::byte, 1> workspace_memory_;
  ActivationPlan<P> plan_;
  Tensor<std::byte, 1> cache_memory_;
  Cache cache_;
  bool uses_graphs_ = false;
  std::uint64_t dropout_seed_ = 0;
  std::map<std::array<int, 3>, BlockGraphs> graphs_;  // by chunk, slot and gradients
  Tensor<double, 0> loss_;
};

}  // namespace espalier
