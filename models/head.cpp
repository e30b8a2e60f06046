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
Head<T>::Head(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const GptConfig& config,
              Placement placement, int token_table)
    : parameters_(&parameters),
      tensor_(&tensor),
      config_(config),
      norm_(parameters, tensor, "final_norm", config.hidden_size, placement),
      token_table_(token_table) {}

template <class T>
typename Head<T>::Saved Head<T>::take_saved(Arena& arena, Index tokens) const {
  Saved saved;
  saved.norm = LayerNorm<T>::Saved::take(arena, tensor_->local_rows(tokens), config_.hidden_size);
  saved.logits = arena.take<T>(tokens, padded_vocabulary(vocabulary().size()));
  saved.losses = arena.take<State<T>>(tokens);
  if (tensor_->size() > 1) {
    saved.largest = arena.take<State<T>>(tokens);
    saved.statistics = arena.take<State<T>>(2 * tokens);
  }
  return saved;
}

template <class T>
typename Head<T>::Gradients Head<T>::take_gradients(Arena& arena, Index tokens) const {
  return {arena.take<T>(tensor_->local_rows(tokens), config_.hidden_size)};
}

// The logits without their padding columns.
template <class T>
Matrix<T> Head<T>::logits_in_use(const Saved& saved) const {
  return {saved.logits.data(), static_cast<Index>(saved.logits.extent(0)), vocabulary().size(),
          static_cast<Index>(saved.logits.extent(1))};
}

template <class T>
void Head<T>::forward(const ExecSpace& exec, Tensor<T, 2> x, Saved& saved) const {
  norm_.forward(exec, x, saved.norm);
  matmul<T>(exec, logits_in_use(saved), Transpose::no, tensor_->gather(exec, saved.norm.y), Transpose::yes,
            parameters_->weight(token_table_, vocabulary().size(), config_.hidden_size));
}

// The statistics of our columns, then of all: two small all_reduces of N and 2N values.
template <class T>
void Head<T>::split_loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Saved& saved) const {
  const IndexRange ours = vocabulary();
  cross_entropy_largest<T>(exec, saved.largest, saved.logits, ours.size());
  tensor_->all_reduce_rows(exec, saved.largest, ReduceOp::max);
  cross_entropy_sums<T>(exec, saved.statistics, saved.logits, targets, saved.largest, ours.size(), ours.begin);
  tensor_->all_reduce_rows(exec, saved.statistics, ReduceOp::sum);
  cross_entropy_losses<State<T>>(exec, saved.losses, targets, saved.largest, saved.statistics);
}

template <class T>
void Head<T>::loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Saved& saved) const {
  if (tensor_->size() > 1)
    split_loss(exec, targets, saved);
  else
    cross_entropy_forward<T>(exec, saved.losses, saved.logits, targets, config_.vocab_size);
}

template <class T>
void Head<T>::loss_and_gradient(const ExecSpace& exec, Tensor<TokenId, 1> targets, State<T> scale, Saved& saved) const {
  if (tensor_->size() > 1) {
    split_loss(exec, targets, saved);
    cross_entropy_split_backward<T>(exec, saved.logits, targets, saved.largest, saved.statistics, vocabulary().size(),
                                    vocabulary().begin, scale);
  } else {
    cross_entropy_forward_backward<T>(exec, saved.losses, saved.logits, targets, config_.vocab_size, scale);
  }
}

template <class T>
void Head<T>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, const Saved& saved, Gradients& gradients) const {
  matmul<T>(exec, tensor_->partial(gradients.dnorm), Transpose::no, logits_in_use(saved), Transpose::no,
            parameters_->weight(token_table_, vocabulary().size(), config_.hidden_size));
  tensor_->reduce(exec, gradients.dnorm);
  Kokkos::deep_copy(exec, dx, T(0));
  norm_.backward_input(exec, dx, gradients.dnorm, saved.norm);
}

template <class T>
void Head<T>::backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients) const {
  matmul<T>(exec, parameters_->gradient(token_table_, vocabulary().size(), config_.hidden_size), Transpose::yes,
            logits_in_use(saved), Transpose::no, tensor_->gather(exec, saved.norm.y), T(1), T(1));
  norm_.backward_weight(exec, gradients.dnorm, saved.norm);
}

template class Head<float>;
template class Head<double>;

}  // namespace espalier
