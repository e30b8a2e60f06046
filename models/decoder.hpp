// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/activation_memory.hpp"
#include "models/activation_plan.hpp"
#include "parallel/device/stream_graph.hpp"

namespace espalier {

/// The layers of one chunk of a rank.
template <class P>
struct DecoderChunk {
  ChunkLayers layers;
  std::optional<VocabParallelEmbedding<P>> embedding;
  std::vector<TransformerBlock<P>> blocks;
  std::optional<Head<P>> head;
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

  /// True: all chunks share the slots 0 to slots_together - 1. False: each chunk has slots of its own. The plan takes
  /// what needs less memory.
  bool shares_slots() const { return plan_.shares_slots(); }

  /// From the next plan_activations() on, a GPU records the kernels of each block and starts them together. Without a
  /// tensor axis only: recorded kernels cannot wait for other ranks.
  void use_graphs(bool use) { uses_graphs_ = use; }

  /// Dropout depends on this seed and on the index of the sample.
  void set_dropout_seed(std::uint64_t seed) { dropout_seed_ = seed; }

  /// Each micro-batch overwrites the gradients of layers and does not add to them: the reducer sums them (ZeRO-2).
  void overwrite_layer_gradients(bool overwrites) { overwrites_layer_gradients_ = overwrites; }

  /// Runs a micro-batch through a chunk. The first chunk reads the inputs of `batch`. The last one reads the targets
  /// and adds weight.loss * (sum of the token losses) to loss(). All chunks read first_sample, for dropout.
  void forward(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, TokenWeight weight,
               const BlockDone& done = {});

  /// Forward without dropout; no backward can follow.
  void evaluate(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, double token_weight,
                const BlockDone& done = {});

  /// Runs up to T tokens of one sequence through slot 0 of a whole model on one rank, without a loss.
  /// @pre activations are planned for B = 1
  /// @param positions of the tokens, in separate documents
  void evaluate(const ExecSpace& exec, const std::vector<TokenId>& tokens, const std::vector<int>& positions = {});

  /// After evaluate() at 0 of the last chunk: logits (rows, V/tp) of what follows each token in `rows` rows of (B T)
  /// from `first` on. Valid until the next call. At most NL rows, see Head.
  Matrix<T> evaluated_logits(const ExecSpace& exec, Index first, Index rows = 1);

  /// Call it before the first micro-batch of a step. That one then overwrites old gradients, and later ones add to it.
  /// Gradients of the token and position tables are set to zero here.
  void begin_gradients(const ExecSpace& exec);

  /// Adds the gradients of the micro-batch. It goes from the last position of the chunk to the first, and calls `done`
  /// after each: the micro-batch has no more gradients for that position.
  void backward(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});

  /// The two parts of backward. The first one gives the gradients that the stage before waits for. The second one adds
  /// the weight gradients, at any later time.
  void backward_input(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});
  void backward_weight(const ExecSpace& exec, ActivationIndex at, const BlockDone& done = {});

  /// The arrays (R, C) that chunks send each other, as bytes: input and output of forward, and their gradients. They
  /// are valid while the micro-batch has its slot.
  using Message = Tensor<unsigned char, 1>;
  Message input(ActivationIndex at) const { return bytes_of(plan_.slot(at).x); }
  Message output(ActivationIndex at) const { return bytes_of(plan_.slot(at).output()); }
  Message output_gradient(ActivationIndex at) const { return bytes_of(plan_.gradients(at).dx.back()); }
  Message input_gradient(ActivationIndex at) const { return bytes_of(plan_.gradients(at).dx.front()); }

  /// For generation, instead of plan_activations(): memory for the keys and values of sequences that grow, and for some
  /// tokens at a time. On one stage.
  void plan_cache(const CacheShape& shape);
  Index cache_bytes(const CacheShape& shape) const;  ///< that plan_cache() allocates

  /// Appends tokens to their sequences in the cache. Tokens of a sequence come in order of position, and its earlier
  /// positions are cached already. @returns logits (count, V/tp) of what follows each of the last `count` tokens, valid
  /// until the next call.
  Matrix<T> decode(const ExecSpace& exec, std::span<const SequenceToken> tokens, Index count);

  Tensor<double, 0> loss() const { return loss_; }  ///< on the device; set it to zero before the first forward
  const ModelConfig& config() const { return config_; }
  const TensorParallel<T>& tensor() const { return *tensor_; }
  const ChunkLayers& layers(int chunk) const { return chunks_.at(static_cast<std::size_t>(chunk)).layers; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }

 private:
  using Stream = Tensor<Residual<P>, 2>;
  using Slot = typename ActivationPlan<P>::Slot;
  using Chunk = DecoderChunk<P>;

  /// The kernels of a chunk's blocks on the arrays of one ActivationIndex, recorded where the device can: a graph a
  /// block. Empty: they are started one by one. The first backward_weight of a step overwrites gradients.
  struct BlockGraphs {
    std::vector<StreamGraph> forward, backward_input, backward_weight, first_backward_weight;
  };

  /// The cache of keys and values of generation, and where new rows are stored.
  struct Cache {
    std::vector<Tensor<T, 3>> layers;  ///< (S, P, 2 KV), by block
    Tensor<State<T>, 2> rotary;        ///< (P, HR)
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
  std::vector<ChunkLayers> chunk_layers() const;
  BlockShape make_shape(Index micro_batch_size, Index sequence_length) const;
  ActivationBytes measure(const BlockShape& shape, const ActivationMemory& memory) const;
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
