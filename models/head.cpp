// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/head.hpp"

#include <algorithm>

#include "core/ops/cross_entropy.hpp"
#include "core/ops/matmul.hpp"

namespace espalier {
namespace {

template <class Vector>
Vector part(const Vector& values, Index first, Index count) {
  return Vector(values.data() + first, count);
}

template <class Rows>
Rows rows_of(const Rows& matrix, Index first, Index count) {
  return Kokkos::subview(matrix, std::pair<Index, Index>(first, first + count), Kokkos::ALL);
}

}  // namespace

template <class T, class Residual>
Head<T, Residual>::Head(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                        Placement placement, int token_table)
    : parameters_(&parameters),
      tensor_(&tensor),
      config_(config),
      norm_(parameters, tensor, "final_norm", config.hidden_size, placement),
      token_table_(token_table) {}

template <class T, class Residual>
typename Head<T, Residual>::Saved Head<T, Residual>::take_saved(Arena& arena, Index tokens) const {
  const Index rows = tensor_->local_rows(tokens);
  return {LayerNorm<T, Residual>::Saved::take(arena, rows, config_.hidden_size),
          LayerNorm<T, Residual>::Gradients::take(arena, rows, config_.hidden_size)};
}

template <class T, class Residual>
typename Head<T, Residual>::Scratch Head<T, Residual>::take_scratch(Arena& arena, Index tokens) const {
  const Index rows = logit_rows(tokens, config_.vocab_size, tensor_->size(), most_logits);
  Scratch scratch;
  scratch.logits = arena.take<T>(rows, parameters_->parameter(token_table_).padded_rows());
  scratch.losses = arena.take<State<T>>(tokens);
  if (tensor_->size() > 1) {
    scratch.largest = arena.take<State<T>>(rows);
    scratch.statistics = arena.take<State<T>>(2 * rows);
  }
  return scratch;
}

template <class T, class Residual>
void Head<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> x, Saved& saved) const {
  norm_.forward(exec, x, saved.norm);
}

// normed W^T, (rows, Vp): products take the table's rows of zeros along.
template <class T, class Residual>
Tensor<T, 2> Head<T, Residual>::logits_of(const ExecSpace& exec, Tensor<T, 2> normed, Scratch& scratch) const {
  Tensor<T, 2> logits = rows_of(scratch.logits, 0, normed.extent(0));
  matmul<T>(exec, logits, Transpose::no, normed, Transpose::yes, parameters_->padded_weight(token_table_));
  return logits;
}

template <class T, class Residual>
Tensor<T, 2> Head<T, Residual>::without_padding(const Tensor<T, 2>& logits) const {
  return Kokkos::subview(logits, Kokkos::ALL, std::pair<Index, Index>(0, vocabulary().size()));
}

// work(rows of normed, their targets, their losses) for chunk after chunk.
template <class T, class Residual>
template <class F>
void Head<T, Residual>::for_chunks(Tensor<TokenId, 1> targets, Tensor<T, 2> normed, const Scratch& scratch,
                                   const F& work) const {
  const auto tokens = static_cast<Index>(normed.extent(0));
  const auto rows = static_cast<Index>(scratch.logits.extent(0));
  for (Index first = 0; first < tokens; first += rows) {
    const Index count = std::min(rows, tokens - first);
    work(rows_of(normed, first, count), part(targets, first, count), part(scratch.losses, first, count));
  }
}

// The statistics of our columns, then of all: two small all_reduces of K and 2K values.
template <class T, class Residual>
void Head<T, Residual>::split_loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Tensor<State<T>, 1> losses,
                                   Tensor<T, 2> logits, Scratch& scratch) const {
  const auto count = static_cast<Index>(logits.extent(0));
  const Tensor<State<T>, 1> largest = part(scratch.largest, 0, count);
  const Tensor<State<T>, 1> statistics = part(scratch.statistics, 0, 2 * count);
  cross_entropy_largest<T>(exec, largest, logits);
  tensor_->all_reduce_rows(exec, largest, ReduceOp::max);
  cross_entropy_sums<T>(exec, statistics, logits, targets, largest, vocabulary().begin);
  tensor_->all_reduce_rows(exec, statistics, ReduceOp::sum);
  cross_entropy_losses<State<T>>(exec, losses, targets, largest, statistics);
}

template <class T, class Residual>
void Head<T, Residual>::loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, const Saved& saved,
                             Scratch& scratch) const {
  for_chunks(targets, tensor_->gather(exec, saved.norm.y), scratch,
             [&](Tensor<T, 2> normed, Tensor<TokenId, 1> wanted, Tensor<State<T>, 1> losses) {
               const Tensor<T, 2> logits = without_padding(logits_of(exec, normed, scratch));
               if (tensor_->size() > 1)
                 split_loss(exec, wanted, losses, logits, scratch);
               else
                 cross_entropy_forward<T>(exec, losses, logits, wanted);
             });
}

// In the full form of the norm's output each chunk is replaced by its gradient (our summand of it) when it has been
// read for the last time.
template <class T, class Residual>
void Head<T, Residual>::loss_and_gradient(const ExecSpace& exec, Tensor<TokenId, 1> targets, State<T> scale,
                                          Saved& saved, Scratch& scratch) const {
  const IndexRange ours = vocabulary();
  for_chunks(targets, tensor_->gather(exec, saved.norm.y), scratch,
             [&](Tensor<T, 2> normed, Tensor<TokenId, 1> wanted, Tensor<State<T>, 1> losses) {
               const Tensor<T, 2> dlogits = logits_of(exec, normed, scratch);  // at first the logits themselves
               const Tensor<T, 2> logits = without_padding(dlogits);           // whose zeros beside them stay
               if (tensor_->size() > 1) {
                 split_loss(exec, wanted, losses, logits, scratch);
                 const auto count = static_cast<Index>(logits.extent(0));
                 cross_entropy_split_backward<T>(exec, logits, wanted, part(scratch.largest, 0, count),
                                                 part(scratch.statistics, 0, 2 * count), ours.begin, scale);
               } else {
                 cross_entropy_forward_backward<T>(exec, losses, logits, wanted, scale);
               }
               matmul<T, State<T>>(exec, parameters_->padded_gradient(token_table_), Transpose::yes, dlogits,
                                   Transpose::no, normed, State<T>(1), State<T>(1));
               matmul<T>(exec, normed, Transpose::no, dlogits, Transpose::no, parameters_->padded_weight(token_table_));
             });
  tensor_->reduce(exec, saved.norm.y);
}

template <class T, class Residual>
Matrix<T> Head<T, Residual>::logits(const ExecSpace& exec, Index first, Index count, const Saved& saved,
                                    Scratch& scratch) const {
  ESPALIER_ASSERT(count <= static_cast<Index>(scratch.logits.extent(0)) && tensor_->size() == 1,
                  "more rows than there is room for, or a vocabulary that is cut");
  return without_padding(logits_of(exec, rows_of(saved.norm.y, first, count), scratch));
}

template <class T, class Residual>
void Head<T, Residual>::backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx, const Saved& saved) const {
  Kokkos::deep_copy(exec, dx, Residual(0));
  norm_.backward_input(exec, dx, dx, saved.norm.y, saved.norm, saved.norm_gradients);
}

template <class T, class Residual>
void Head<T, Residual>::backward_weight(const ExecSpace& exec, const Saved& saved, State<T> beta) const {
  norm_.backward_weight(exec, saved.norm.y, saved.norm, saved.norm_gradients, beta);
}

template <class T, class Residual>
void Head<T, Residual>::zero_table_gradient(const ExecSpace& exec) const {
  Kokkos::deep_copy(exec, parameters_->padded_gradient(token_table_), State<T>(0));
}

#define ESPALIER_INSTANTIATE(T, R) template class Head<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
