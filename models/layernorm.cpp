// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/layernorm.hpp"

#include "core/ops/layernorm.hpp"

namespace espalier {

template <class T, class Residual>
typename LayerNorm<T, Residual>::Saved LayerNorm<T, Residual>::Saved::take(Arena& arena, Index rows, Index channels,
                                                                           SavedParts parts) {
  Saved saved;
  if (parts.for_weight)
    saved.y = arena.take<T>(rows, channels);
  if (parts.for_both) {
    saved.mean = arena.take<State<T>>(rows);
    saved.rstd = arena.take<State<T>>(rows);
  }
  return saved;
}

template <class T, class Residual>
void LayerNorm<T, Residual>::Saved::borrow_from(const Saved& other) {
  borrow(y, other.y);
  borrow(mean, other.mean);
  borrow(rstd, other.rstd);
}

template <class T, class Residual>
typename LayerNorm<T, Residual>::Gradients LayerNorm<T, Residual>::Gradients::take(Arena& arena, Index rows,
                                                                                   Index channels) {
  return {arena.take<State<T>>(layernorm_partial_rows(rows, channels), 2 * channels)};
}

template <class T, class Residual>
LayerNorm<T, Residual>::LayerNorm(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                  const std::string& name, Index channels, Placement placement)
    : parameters_(&parameters),
      channels_(channels),
      weight_(parameters.declare({.name = name + ".weight",
                                  .shape = {channels},
                                  .chunk = placement.chunk,
                                  .block = placement.block,
                                  .group = tensor.replicated_group(),
                                  .weight_decay = false,
                                  .init_mean = 1})),
      bias_(parameters.declare({.name = name + ".bias",
                                .shape = {channels},
                                .chunk = placement.chunk,
                                .block = placement.block,
                                .group = tensor.replicated_group(),
                                .weight_decay = false})) {}

template <class T, class Residual>
void LayerNorm<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> x, Saved& saved) const {
  saved.x = x;
  layernorm_forward<T, Residual>(exec, saved.y, saved.mean, saved.rstd, x, parameters_->weight(weight_, channels_),
                                 parameters_->weight(bias_, channels_));
}

template <class T, class Residual>
void LayerNorm<T, Residual>::backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx, Tensor<Residual, 2> dstream,
                                            Tensor<T, 2> dy, const Saved& saved, const Gradients& gradients) const {
  layernorm_backward_input<T, Residual>(exec, dx, dstream, dy, saved.x, saved.mean, saved.rstd,
                                        parameters_->weight(weight_, channels_), gradients.partial);
}

template <class T, class Residual>
void LayerNorm<T, Residual>::backward_weight(const ExecSpace& exec, Tensor<T, 2> dy, const Saved& saved,
                                             const Gradients& gradients, State<T> beta) const {
  const Tensor<State<T>, 1> dweight = parameters_->gradient(weight_, channels_);
  const Tensor<State<T>, 1> dbias = parameters_->gradient(bias_, channels_);
  if (gradients.partial.extent(0) > 0)
    layernorm_backward_weight<State<T>>(exec, dweight, dbias, gradients.partial, beta);
  else
    layernorm_backward_weight<T, Residual>(exec, dweight, dbias, dy, saved.x, saved.mean, saved.rstd, beta);
}

#define ESPALIER_INSTANTIATE(T, R) template class LayerNorm<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
