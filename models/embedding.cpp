// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/embedding.hpp"

#include "core/ops/embedding.hpp"

namespace espalier {

template <class T>
Embedding<T>::Embedding(ParameterStore<T>& parameters, const GptConfig& config, Placement placement)
    : parameters_(&parameters),
      config_(config),
      token_table_(parameters.declare({.name = "embedding.token",
                                       .shape = {config.vocab_size, config.hidden_size},
                                       .chunk = placement.chunk,
                                       .block = placement.block,
                                       .group = ReductionGroup::tied,
                                       .init_std = 0.02})),
      position_table_(parameters.declare({.name = "embedding.position",
                                          .shape = {config.max_sequence_length, config.hidden_size},
                                          .chunk = placement.chunk,
                                          .block = placement.block,
                                          .init_std = 0.02})) {}

template <class T>
void Embedding<T>::forward(const ExecSpace& exec, Tensor<T, 2> x, Tensor<TokenId, 1> tokens,
                           Index sequence_length) const {
  embedding_forward<T>(exec, x, tokens, parameters_->weight(token_table_, config_.vocab_size, config_.hidden_size),
                       parameters_->weight(position_table_, config_.max_sequence_length, config_.hidden_size),
                       sequence_length);
}

template <class T>
void Embedding<T>::backward_weight(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<TokenId, 1> tokens,
                                   Index sequence_length) const {
  embedding_backward<T>(exec, parameters_->gradient(token_table_, config_.vocab_size, config_.hidden_size),
                        parameters_->gradient(position_table_, config_.max_sequence_length, config_.hidden_size), dx,
                        tokens, sequence_length);
}

template class Embedding<float>;
template class Embedding<double>;

}  // namespace espalier
