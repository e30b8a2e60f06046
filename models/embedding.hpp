// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "core/ops/embedding.hpp"
#include "models/dropout_rows.hpp"
#include "models/linear.hpp"
#include "models/logit_rows.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// On what this program runs on.
inline constexpr LogitSizes logits_here = exec_is_host ? logits_on_host : logits_on_gpu;

/// Declares a matrix (V, C): the token embedding "embedding.token" where the embedding is, and, with a tied head, where
/// that is without it (both copies start alike, and their gradients are summed); "head.weight" of an untied head.
template <class T>
int declare_token_embedding(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                            Placement placement, Index row_multiple = logits_here.multiple,
                            const std::string& name = "embedding.token") {
  return parameters.declare({.name = name,
                             .shape = {config.vocab_size, config.hidden_size},
                             .shard = tensor.shard(0),
                             .chunk = placement.chunk,
                             .block = placement.block,
                             .tied = config.tied_embeddings,
                             .init_std = initial_weight_std,
                             .row_multiple = row_multiple});
}

/// Token embedding, and learned positions where the model has them (core/ops/embedding). The token embedding is cut by
/// rows over the tensor axis, evenly up to one row; a tied head has the same weight. Every rank holds the positions.
template <class P>
class VocabParallelEmbedding {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  VocabParallelEmbedding(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                         Placement placement, Index row_multiple = logits_here.multiple)
      : parameters_(&parameters),
        tensor_(&tensor),
        config_(config),
        token_embedding_(declare_token_embedding(parameters, tensor, config, placement, row_multiple)) {
    if (has_positions())
      position_embedding_ = parameters.declare({.name = "embedding.position",
                                                .shape = {config.max_sequence_length, config.hidden_size},
                                                .chunk = placement.chunk,
                                                .block = placement.block,
                                                .partial = tensor.partial_axes(),
                                                .init_std = initial_weight_std});
  }

  static LayerWork work(const BlockShape& shape) {
    LayerWork work;
    add_reduce<T>(work.forward, shape, shape.channels);
    add_gather<T>(work.backward_weight, shape, shape.channels);
    const auto stream = [&](int times) { return array_bytes<Residual<P>>(shape.rows, shape.channels, times); };
    work.forward.elementwise_bytes += array_bytes<T>(shape.tokens(), shape.channels, 2);  // from the table to x
    if (shape.positions > 0 || !std::is_same_v<T, Residual<P>>)
      work.forward.elementwise_bytes += array_bytes<T>(shape.rows, shape.channels) + stream(1);
    // To the rows of the table that are ours, and to those of the positions.
    const Index ours = shape.tokens() / shape.tensor_size;
    work.backward_weight.elementwise_bytes +=
        array_bytes<T>(ours, shape.channels) + array_bytes<State<T>>(ours, shape.channels, 2);
    if (shape.positions > 0)
      work.backward_weight.elementwise_bytes += stream(1);
    if (shape.drops_embedding)
      for (Work* const pass : {&work.forward, &work.backward_weight})
        pass->elementwise_bytes += stream(2);
    return work;
  }

  /// @param positions of each token, where they are not those of whole sequences
  void forward(const ExecSpace& exec, Stream x /* (R, C) */, Tensor<TokenId, 1> tokens /* (N) */, Index sequence_length,
               const DropoutContext& context, Tensor<int, 1> positions = {} /* (N) */) const {
    const IndexRange ours = vocabulary();
    embedding_forward<T>(exec, tensor_->partial(x), tokens,
                         parameters_->weight(token_embedding_, ours.size(), config_.hidden_size), ours.begin);
    const Tensor<T, 2> embedded = tensor_->reduce(exec, x);  // (R, C)
    if (has_positions())
      add_positions<T, Residual<P>>(
          exec, x, embedded, parameters_->weight(position_embedding_, config_.max_sequence_length, config_.hidden_size),
          sequence_length, tensor_->first_row(tokens.extent(0)), of_our_rows(positions, x));
    else
      copy(exec, x, embedded);
    drop(exec, x, tokens.extent(0), sequence_length, context);
  }

  /// What backward_weight wants besides, from an arena.
  static Tensor<int, 1> take_scratch(Arena& arena, const BlockShape& shape) {
    return arena.take<int>(embedding_scratch(std::max(shape.vocabulary, shape.positions)));
  }

  /// @param dx what dropout leaves of it, afterwards
  void backward_weight(const ExecSpace& exec, Stream dx /* (R, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                       Tensor<int, 1> scratch, Index sequence_length, const DropoutContext& context,
                       Tensor<int, 1> positions = {} /* (N) */) const {
    drop(exec, dx, tokens.extent(0), sequence_length, context);
    const IndexRange ours = vocabulary();
    embedding_backward<T>(exec, parameters_->gradient(token_embedding_, ours.size(), config_.hidden_size),
                          tensor_->gather(exec, dx), tokens, scratch, ours.begin);
    if (has_positions() && positions.extent(0) > 0)  // rows of a table like those of tokens
      embedding_backward<Residual<P>>(exec, position_gradient(), dx, of_our_rows(positions, dx), scratch);
    else if (has_positions())
      add_positions_backward<Residual<P>>(exec, position_gradient(), dx, sequence_length,
                                          tensor_->first_row(tokens.extent(0)));
  }

  /// Of the tables, which backward_weight adds to.
  void zero_gradients(const ExecSpace& exec) const {
    Kokkos::deep_copy(exec, parameters_->padded_gradient(token_embedding_), State<T>(0));
    if (has_positions())
      Kokkos::deep_copy(exec, position_gradient(), State<T>(0));
  }

  int token_embedding() const { return token_embedding_; }  ///< handle in the store, for a tied head

 private:
  bool has_positions() const { return config_.positions == Positions::learned; }
  void drop(const ExecSpace& exec, const Stream& x /* (R, C) */, Index num_tokens, Index sequence_length,
            const DropoutContext& context) const {
    const Dropout dropout = dropout_of_rows(context, config_.embedding_dropout, "embedding", sequence_length,
                                            tensor_->first_row(num_tokens));
    if (dropout.is_on())
      apply_dropout<Residual<P>>(exec, x, x, dropout);
  }
  Tensor<int, 1> of_our_rows(const Tensor<int, 1>& positions /* (N) */, const Stream& x /* (R, C) */) const {
    if (positions.extent(0) == 0)
      return {};
    return Tensor<int, 1>(positions.data() + tensor_->first_row(positions.extent(0)), x.extent(0));
  }
  // x = embedded, which may be x
  static void copy(const ExecSpace& exec, const Stream& x /* (R, C) */, const Tensor<T, 2>& embedded /* (R, C) */) {
    if constexpr (std::is_same_v<T, Residual<P>>) {
      if (x.data() != embedded.data())
        Kokkos::deep_copy(exec, x, embedded);
    } else {
      convert<Residual<P>, T>(exec, Tensor<Residual<P>, 1>(x.data(), x.size()),
                              Tensor<T, 1>(embedded.data(), embedded.size()));
    }
  }
  IndexRange vocabulary() const { return tensor_->shard(0).range(config_.vocab_size); }  // of this rank
  Tensor<State<T>, 2> position_gradient() const {                                        // (P, C)
    return parameters_->gradient(position_embedding_, config_.max_sequence_length, config_.hidden_size);
  }

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  ModelConfig config_;
  int token_embedding_;
  int position_embedding_ = 0;
};

}  // namespace espalier
