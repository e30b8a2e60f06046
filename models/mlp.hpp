// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/activation.hpp"
#include "models/linear.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// The feed-forward part of a block: up, activation function, down; with a gate f(gate) * up, down (Shazeer, GLU
/// Variants Improve Transformer, 2020). F = ffn_hidden_size, of which each rank of the tensor axis has F/tp channels.
template <class P>
class Mlp {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    Tensor<T, 2> up;         ///< (N, F/tp), before the activation function; with a gate (N, 2F/tp), [gate | up]
    Tensor<T, 2> activated;  ///< (N, F/tp)

    template <class Visit>
    void each(Visit& visit, const BlockShape& shape) {
      visit(up, SavedArray{"mlp.up", MadeBy::matmul, ReadBy::backward_input}, shape.tokens(), shape.up);
      visit(activated, SavedArray{"mlp.activated", MadeBy::elementwise, ReadBy::backward_weight}, shape.tokens(),
            shape.ffn);
    }
  };
  struct Gradients {
    Tensor<T, 2> dup;  ///< (N, F/tp), or (N, 2F/tp), as up

    static Gradients take(Arena& arena, const BlockShape& shape) { return {arena.take<T>(shape.tokens(), shape.up)}; }
  };

  Mlp(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
      const ModelConfig& config, Placement placement, double init_std, double projection_std)
      : activation_(config.activation),
        is_gated_(config.gated()),
        up_(parameters, tensor, up_outputs(name, config), config.hidden_size, config.bias, placement, init_std),
        down_(parameters, tensor, name + ".down", config.hidden_size, config.ffn_hidden_size, config.bias, placement,
              projection_std) {}

  static void work(LayerWork& work, const BlockShape& shape) {
    const auto bytes = [&](Index columns) { return array_bytes<T>(shape.tokens(), columns); };
    ColumnParallelLinear<P>::work(work, shape, shape.up, shape.channels, shape.bias);
    work.forward.elementwise_bytes += bytes(shape.up) + bytes(shape.ffn);
    work.recompute_for_weight.elementwise_bytes += bytes(shape.up) + bytes(shape.ffn);
    work.backward_input.elementwise_bytes += 2 * bytes(shape.up) + bytes(shape.ffn);
    work.recompute = work.forward;  // without the matmul that makes the block's output
    RowParallelLinear<P>::work(work, shape, shape.channels, shape.ffn, shape.bias);
  }

  /// y = residual + dropout(mlp(x))
  void forward(const ExecSpace& exec, Stream y /* (R, C) */, Tensor<T, 2> x /* (R, C) */, Stream residual /* (R, C) */,
               Saved& saved, const Dropout& dropout) const {
    recompute(exec, x, saved);
    down_.forward_add(exec, y, saved.activated, residual, dropout);
  }

  /// Forward as far as backward reads it: saved alone.
  void recompute(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Saved& saved) const {
    if (activation_ == "gelu")  // which some libraries do with the matmul
      return up_.forward_gelu(exec, saved.activated, saved.up, x);
    up_.forward(exec, saved.up, x);
    recompute_for_weight(exec, saved);
  }

  /// Of saved what backward_weight alone reads, from the rest.
  void recompute_for_weight(const ExecSpace& exec, Saved& saved) const {
    activation_forward<T>(exec, activation_, saved.activated, saved.up);
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Stream dy /* (R, C) */,
                      const Saved& saved, Gradients& gradients) const {
    if (activation_ == "gelu") {
      down_.backward_input_gelu(exec, gradients.dup, dy, saved.up);
    } else if (is_gated_) {  // the gradient of `activated` stands in the left half of its own
      const Tensor<T, 2> dactivated = Kokkos::subview(
          gradients.dup, Kokkos::ALL, std::pair<Index, Index>(0, saved.activated.extent(1)));  // (N, F/tp)
      down_.backward_input(exec, dactivated, dy);
      activation_backward<T>(exec, activation_, gradients.dup, dactivated, saved.up);
    } else {
      down_.backward_input(exec, gradients.dup, dy);
      activation_backward<T>(exec, activation_, gradients.dup, gradients.dup, saved.up);
    }
    up_.backward_input(exec, dx, gradients.dup);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Stream dy /* (R, C) */, const Saved& saved,
                       const Gradients& gradients, State<T> beta) const {
    down_.backward_weight(exec, saved.activated, dy, beta);
    up_.backward_weight(exec, x, gradients.dup, beta);
  }

 private:
  static std::vector<LinearOutputs> up_outputs(const std::string& name, const ModelConfig& config) {
    std::vector<LinearOutputs> outputs;
    if (config.gated())
      outputs.push_back({name + ".gate", config.ffn_hidden_size});
    outputs.push_back({name + ".up", config.ffn_hidden_size});
    return outputs;
  }

  std::string activation_;
  bool is_gated_;
  ColumnParallelLinear<P> up_;
  RowParallelLinear<P> down_;
};

}  // namespace espalier
