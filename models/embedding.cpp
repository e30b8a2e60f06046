// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/embedding.hpp"

#include "core/ops/embedding.hpp"

namespace espalier {

template <class T>
int declare_token_table(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                        Placement placement) {
  return parameters.declare({.name = "embedding.token",
                             .shape = {config.vocab_size, config.hidden_size},
                             .shard = tensor.shard(0),
                             .chunk = placement.chunk,
                             .block = placement.block,
                             .group = ReductionGroup::tied,
                             .init_std = 0.02,
                             .row_multiple = logit_multiple});
}

template <class T, class Residual>
VocabParallelEmbedding<T, Residual>::VocabParallelEmbedding(ParameterStore<T>& parameters,
                                                            const TensorParallel<T>& tensor, const ModelConfig& config,
                                                            Placement placement)
    : parameters_(&parameters),
      tensor_(&tensor),
      config_(config),
      token_table_(declare_token_table(parameters, tensor, config, placement)),
      position_table_(parameters.declare({.name = "embedding.position",
                                          .shape = {config.max_sequence_length, config.hidden_size},
                                          .chunk = placement.chunk,
                                          .block = placement.block,
                                          .group = tensor.replicated_group(),
                                          .init_std = 0.02})) {}

template <class T, class Residual>
void VocabParallelEmbedding<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> x,
                                                  Tensor<TokenId, 1> tokens, Index sequence_length) const {
  const IndexRange ours = tensor_->shard(0).range(config_.vocab_size);
  embedding_forward<T>(exec, tensor_->partial(x), tokens,
                       parameters_->weight(token_table_, ours.size(), config_.hidden_size), ours.begin);
  const Tensor<T, 2> embedded = tensor_->reduce(exec, x);  // (R, C)
  add_positions<T, Residual>(exec, x, embedded,
                             parameters_->weight(position_table_, config_.max_sequence_length, config_.hidden_size),
                             sequence_length, tensor_->first_row(tokens.extent(0)));
}

template <class T, class Residual>
void VocabParallelEmbedding<T, Residual>::backward_weight(const ExecSpace& exec, Tensor<Residual, 2> dx,
                                                          Tensor<TokenId, 1> tokens, Index sequence_length) const {
  const IndexRange ours = tensor_->shard(0).range(config_.vocab_size);
  embedding_backward<T>(exec, parameters_->gradient(token_table_, ours.size(), config_.hidden_size),
                        tensor_->gather(exec, dx), tokens, ours.begin);
  add_positions_backward<Residual>(
      exec, parameters_->gradient(position_table_, config_.max_sequence_length, config_.hidden_size), dx,
      sequence_length, tensor_->first_row(tokens.extent(0)));
}

template <class T, class Residual>
void VocabParallelEmbedding<T, Residual>::zero_gradients(const ExecSpace& exec) const {
  Kokkos::deep_copy(exec, parameters_->padded_gradient(token_table_), State<T>(0));
  Kokkos::deep_copy(exec, parameters_->gradient(position_table_, config_.max_sequence_length, config_.hidden_size),
                    State<T>(0));
}

#define ESPALIER_INSTANTIATE(T) \
  template int declare_token_table<T>(ParameterStore<T>&, const TensorParallel<T>&, const ModelConfig&, Placement);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R) template class VocabParallelEmbedding<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
