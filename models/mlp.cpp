// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/mlp.hpp"

#include "core/ops/gelu.hpp"

namespace espalier {

template <class T, class Residual>
typename Mlp<T, Residual>::Saved Mlp<T, Residual>::Saved::take(Arena& arena, Index rows, Index local_ffn,
                                                               SavedParts parts) {
  Saved saved;
  if (parts.for_input)
    saved.up = arena.take<T>(rows, local_ffn);
  if (parts.for_weight)
    saved.activated = arena.take<T>(rows, local_ffn);
  return saved;
}

template <class T, class Residual>
void Mlp<T, Residual>::Saved::borrow_from(const Saved& other) {
  borrow(up, other.up);
  borrow(activated, other.activated);
}

template <class T, class Residual>
typename Mlp<T, Residual>::Gradients Mlp<T, Residual>::Gradients::take(Arena& arena, Index rows, Index local_ffn) {
  return {arena.take<T>(rows, local_ffn)};
}

template <class T, class Residual>
Mlp<T, Residual>::Mlp(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
                      Index hidden_size, Index ffn_hidden_size, Placement placement, double init_std,
                      double projection_std)
    : up_(parameters, tensor, name + ".up", {ffn_hidden_size, hidden_size}, placement, init_std),
      down_(parameters, tensor, name + ".down", hidden_size, ffn_hidden_size, placement, projection_std) {}

template <class T, class Residual>
void Mlp<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> x,
                               Tensor<Residual, 2> residual, Saved& saved) const {
  recompute(exec, x, saved);
  down_.forward_add(exec, y, saved.activated, residual);
}

template <class T, class Residual>
void Mlp<T, Residual>::recompute(const ExecSpace& exec, Tensor<T, 2> x, Saved& saved) const {
  up_.forward_gelu(exec, saved.activated, saved.up, x);
}

template <class T, class Residual>
void Mlp<T, Residual>::recompute_activated(const ExecSpace& exec, Saved& saved) const {
  gelu_forward<T>(exec, saved.activated, saved.up);
}

template <class T, class Residual>
void Mlp<T, Residual>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<Residual, 2> dy,
                                      const Saved& saved, Gradients& gradients) const {
  down_.backward_input_gelu(exec, gradients.dup, dy, saved.up);
  up_.backward_input(exec, dx, gradients.dup);
}

template <class T, class Residual>
void Mlp<T, Residual>::backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<Residual, 2> dy,
                                       const Saved& saved, const Gradients& gradients, State<T> beta) const {
  down_.backward_weight(exec, saved.activated, dy, beta);
  up_.backward_weight(exec, x, gradients.dup, beta);
}

#define ESPALIER_INSTANTIATE(T, R) template class Mlp<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
