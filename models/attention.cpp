// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/attention.hpp"

namespace espalier {

template <class T, class Residual>
typename Attention<T, Residual>::Saved Attention<T, Residual>::Saved::take(Arena& arena, const AttentionShape& shape,
                                                                           SavedParts parts) {
  const Index rows = shape.batch * shape.sequence_length;
  const Index channels = shape.num_heads * shape.head_size;
  Saved saved;
  if (parts.for_input) {
    saved.qkv = arena.take<T>(rows, 3 * channels);
    saved.log_sum_exp = arena.take<State<T>>(rows * shape.num_heads);
  }
  if (parts.for_both)
    saved.heads = arena.take<T>(rows, channels);
  return saved;
}

template <class T, class Residual>
void Attention<T, Residual>::Saved::borrow_from(const Saved& other) {
  borrow(qkv, other.qkv);
  borrow(heads, other.heads);
  borrow(log_sum_exp, other.log_sum_exp);
}

template <class T, class Residual>
typename Attention<T, Residual>::Gradients Attention<T, Residual>::Gradients::take(Arena& arena,
                                                                                   const AttentionShape& shape) {
  const Index rows = shape.batch * shape.sequence_length;
  const Index channels = shape.num_heads * shape.head_size;
  return {arena.take<T>(rows, 3 * channels), arena.take<T>(rows, channels)};
}

template <class T, class Residual>
Attention<T, Residual>::Attention(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                  const std::string& name, Index hidden_size, Placement placement, double init_std,
                                  double projection_std)
    : qkv_(parameters, tensor, name + ".qkv", {3, hidden_size, hidden_size}, placement, init_std),
      projection_(parameters, tensor, name + ".proj", hidden_size, hidden_size, placement, projection_std) {}

template <class T, class Residual>
void Attention<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> x,
                                     Tensor<Residual, 2> residual, const AttentionShape& shape, Saved& saved) const {
  qkv_.forward(exec, saved.qkv, x);
  attention_forward<T>(exec, saved.heads, saved.log_sum_exp, saved.qkv, shape);
  projection_.forward_add(exec, y, saved.heads, residual);
}

template <class T, class Residual>
void Attention<T, Residual>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<Residual, 2> dy,
                                            const AttentionShape& shape, const Saved& saved,
                                            Gradients& gradients) const {
  projection_.backward_input(exec, gradients.dheads, dy);
  attention_backward<T>(exec, gradients.dqkv, gradients.dheads, saved.heads, saved.log_sum_exp, saved.qkv, shape);
  qkv_.backward_input(exec, dx, gradients.dqkv);
}

template <class T, class Residual>
void Attention<T, Residual>::backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<Residual, 2> dy,
                                             const Saved& saved, const Gradients& gradients, State<T> beta) const {
  projection_.backward_weight(exec, saved.heads, dy, beta);
  qkv_.backward_weight(exec, x, gradients.dqkv, beta);
}

#define ESPALIER_INSTANTIATE(T, R) template class Attention<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
