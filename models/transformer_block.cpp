// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/transformer_block.hpp"

#include <cmath>

namespace espalier {
namespace {

constexpr double init_std = 0.02;

// Each block adds two branches to the residual stream: their last layers start smaller, so that its variance does not
// grow with the depth (GPT-2, section 2.3).
double projection_std(const ModelConfig& config) {
  return init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

}  // namespace

template <class T, class Residual>
typename TransformerBlock<T, Residual>::Saved TransformerBlock<T, Residual>::Saved::take(Arena& arena,
                                                                                         const BlockShape& shape,
                                                                                         SavedParts parts) {
  Saved saved;
  saved.norm1 = LayerNorm<T, Residual>::Saved::take(arena, shape.rows, shape.channels, parts);
  saved.attention = Attention<T, Residual>::Saved::take(arena, shape.attention, parts);
  if (parts.for_both)
    saved.h = arena.take<Residual>(shape.rows, shape.channels);
  saved.norm2 = LayerNorm<T, Residual>::Saved::take(arena, shape.rows, shape.channels, parts);
  saved.mlp = Mlp<T, Residual>::Saved::take(arena, shape.tokens(), shape.ffn, parts);
  return saved;
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::Saved::borrow_from(const Saved& other) {
  norm1.borrow_from(other.norm1);
  attention.borrow_from(other.attention);
  borrow(h, other.h);
  norm2.borrow_from(other.norm2);
  mlp.borrow_from(other.mlp);
}

template <class T, class Residual>
typename TransformerBlock<T, Residual>::Gradients TransformerBlock<T, Residual>::Gradients::take(
    Arena& arena, const BlockShape& shape) {
  Gradients gradients;
  gradients.dnorm2 = arena.take<T>(shape.rows, shape.channels);
  gradients.norm2 = LayerNorm<T, Residual>::Gradients::take(arena, shape.rows, shape.channels);
  gradients.dh = arena.take<Residual>(shape.rows, shape.channels);
  gradients.dnorm1 = arena.take<T>(shape.rows, shape.channels);
  gradients.norm1 = LayerNorm<T, Residual>::Gradients::take(arena, shape.rows, shape.channels);
  gradients.mlp = Mlp<T, Residual>::Gradients::take(arena, shape.tokens(), shape.ffn);
  gradients.attention = Attention<T, Residual>::Gradients::take(arena, shape.attention);
  return gradients;
}

template <class T, class Residual>
TransformerBlock<T, Residual>::TransformerBlock(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                                const std::string& name, const ModelConfig& config, Placement placement)
    : norm1_(parameters, tensor, name + ".norm1", config.hidden_size, placement),
      attention_(parameters, tensor, name + ".attention", config.hidden_size, placement, init_std,
                 projection_std(config)),
      norm2_(parameters, tensor, name + ".norm2", config.hidden_size, placement),
      mlp_(parameters, tensor, name + ".mlp", config.hidden_size, config.ffn_hidden_size, placement, init_std,
           projection_std(config)) {}

template <class T, class Residual>
void TransformerBlock<T, Residual>::forward(const ExecSpace& exec, Tensor<Residual, 2> x, const BlockShape& shape,
                                            Saved& saved) const {
  first_half(exec, x, shape, saved);
  mlp_.forward(exec, saved.y, saved.norm2.y, saved.h, saved.mlp);
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::recompute(const ExecSpace& exec, Tensor<Residual, 2> x, const BlockShape& shape,
                                              Saved& saved) const {
  first_half(exec, x, shape, saved);
  mlp_.recompute(exec, saved.norm2.y, saved.mlp);
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::recompute_for_weight(const ExecSpace& exec, Saved& saved) const {
  norm1_.forward(exec, saved.norm1.x, saved.norm1);
  norm2_.forward(exec, saved.norm2.x, saved.norm2);
  mlp_.recompute_activated(exec, saved.mlp);
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::first_half(const ExecSpace& exec, Tensor<Residual, 2> x, const BlockShape& shape,
                                               Saved& saved) const {
  norm1_.forward(exec, x, saved.norm1);
  attention_.forward(exec, saved.h, saved.norm1.y, x, shape.attention, saved.attention);
  norm2_.forward(exec, saved.h, saved.norm2);
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx,
                                                   Tensor<Residual, 2> dy, const BlockShape& shape, const Saved& saved,
                                                   Gradients& gradients) const {
  gradients.dy = dy;
  mlp_.backward_input(exec, gradients.dnorm2, dy, saved.mlp, gradients.mlp);
  norm2_.backward_input(exec, gradients.dh, dy, gradients.dnorm2, saved.norm2, gradients.norm2);
  attention_.backward_input(exec, gradients.dnorm1, gradients.dh, shape.attention, saved.attention,
                            gradients.attention);
  norm1_.backward_input(exec, dx, gradients.dh, gradients.dnorm1, saved.norm1, gradients.norm1);
}

template <class T, class Residual>
void TransformerBlock<T, Residual>::backward_weight(const ExecSpace& exec, const Saved& saved,
                                                    const Gradients& gradients, State<T> beta) const {
  mlp_.backward_weight(exec, saved.norm2.y, gradients.dy, saved.mlp, gradients.mlp, beta);
  norm2_.backward_weight(exec, gradients.dnorm2, saved.norm2, gradients.norm2, beta);
  attention_.backward_weight(exec, saved.norm1.y, gradients.dh, saved.attention, gradients.attention, beta);
  norm1_.backward_weight(exec, gradients.dnorm1, saved.norm1, gradients.norm1, beta);
}

#define ESPALIER_INSTANTIATE(T, R) template class TransformerBlock<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
