// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/head.hpp"

#include "core/ops/cross_entropy.hpp"
#include "core/ops/matmul.hpp"

namespace espalier {
namespace {

// Rows of logits start at multiples of a cache line whatever the vocabulary.
Index padded_vocabulary(Index vocab_size) { return (vocab_size + 63) / 64 * 64; }

}  // namespace

template <class T>
typename Head<T>::Saved Head<T>::Saved::take(Arena& arena, const GptConfig& config, Index rows) {
  Saved saved;
  saved.norm = LayerNorm<T>::Saved::take(arena, rows, config.hidden_size);
  saved.logits = arena.take<T>(rows, padded_vocabulary(config.vocab_size));
  saved.losses = arena.take<State<T>>(rows);
  return saved;
}

template <class T>
typename Head<T>::Gradients Head<T>::Gradients::take(Arena& arena, const GptConfig& config, Index rows) {
  return {arena.take<T>(rows, config.hidden_size)};
}

template <class T>
Head<T>::Head(ParameterStore<T>& parameters, const GptConfig& config, Placement placement, int token_table)
    : parameters_(&parameters),
      config_(config),
      norm_(parameters, "final_norm", config.hidden_size, placement),
      token_table_(token_table) {}

// The logits without their padding columns.
template <class T>
Matrix<T> Head<T>::logits_in_use(const Saved& saved) const {
  return {saved.logits.data(), static_cast<Index>(saved.logits.extent(0)), config_.vocab_size,
          static_cast<Index>(saved.logits.extent(1))};
}

template <class T>
void Head<T>::forward(const ExecSpace& exec, Tensor<T, 2> x, Saved& saved) const {
  norm_.forward(exec, x, saved.norm);
  matmul<T>(exec, logits_in_use(saved), Transpose::no, saved.norm.y, Transpose::yes,
            parameters_->weight(token_table_, config_.vocab_size, config_.hidden_size));
}

template <class T>
void Head<T>::loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, State<T> scale, Saved& saved) const {
  if (scale == State<T>(0))
    cross_entropy_forward<T>(exec, saved.losses, saved.logits, targets, config_.vocab_size);
  else
    cross_entropy_forward_backward<T>(exec, saved.losses, saved.logits, targets, config_.vocab_size, scale);
}

template <class T>
void Head<T>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, const Saved& saved, Gradients& gradients) const {
  matmul<T>(exec, gradients.dnorm, Transpose::no, logits_in_use(saved), Transpose::no,
            parameters_->weight(token_table_, config_.vocab_size, config_.hidden_size));
  Kokkos::deep_copy(exec, dx, T(0));
  norm_.backward_input(exec, dx, gradients.dnorm, saved.norm);
}

template <class T>
void Head<T>::backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients) const {
  matmul<T>(exec, parameters_->gradient(token_table_, config_.vocab_size, config_.hidden_size), Transpose::yes,
            logits_in_use(saved), Transpose::no, saved.norm.y, T(1), T(1));
  norm_.backward_weight(exec, gradients.dnorm, saved.norm);
}

template class Head<float>;
template class Head<double>;

}  // namespace espalier
