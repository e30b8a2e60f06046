// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/layernorm.hpp"
#include "core/ops/rmsnorm.hpp"
#include "models/linear.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// The norm of the residual stream: LayerNorm with weight and bias (core/ops/layernorm), or RMSNorm, which has no bias
/// and no mean (core/ops/rmsnorm). This rank has R rows of C channels. Under sequence parallelism the gradients are
/// summed over the tensor axis.
template <class P>
class NormLayer {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    Stream x;                  ///< (R, C), the input, owned by whoever made it
    Tensor<T, 2> y;            ///< (R, C), the output, which the next matmul needs again
    Tensor<State<T>, 1> mean;  ///< (R), of LayerNorm
    Tensor<State<T>, 1> rstd;  ///< (R)

    template <class Visit>
    void each(Visit& visit, Norm kind, Index rows, Index channels) {
      visit(y, SavedArray{"norm.y", MadeBy::elementwise, ReadBy::backward_weight}, rows, channels);
      if (kind == Norm::layernorm)
        visit(mean, SavedArray{"norm.mean", MadeBy::elementwise, ReadBy::both_parts}, rows);
      visit(rstd, SavedArray{"norm.rstd", MadeBy::elementwise, ReadBy::both_parts}, rows);
    }
  };
  /// What backward_input leaves for backward_weight.
  struct Gradients {
    Tensor<State<T>, 2> partial;  ///< (P, 2C), or (P, C): see layernorm_partial_rows and rmsnorm_partial_rows

    static Gradients take(Arena& arena, Norm kind, Index rows, Index channels) {
      if (kind == Norm::rmsnorm)
        return {arena.take<State<T>>(rmsnorm_partial_rows(rows, channels), channels)};
      return {arena.take<State<T>>(layernorm_partial_rows(rows, channels), 2 * channels)};
    }
  };

  NormLayer(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
            const ModelConfig& config, Placement placement)
      : parameters_(&parameters),
        kind_(config.norm),
        eps_(config.norm_eps),
        channels_(config.hidden_size),
        weight_(parameters.declare({.name = name + ".weight",
                                    .shape = {channels_},
                                    .chunk = placement.chunk,
                                    .block = placement.block,
                                    .partial = tensor.partial_axes(),
                                    .weight_decay = false,
                                    .init_mean = 1})) {
    if (kind_ == Norm::layernorm)
      bias_ = parameters.declare({.name = name + ".bias",
                                  .shape = {channels_},
                                  .chunk = placement.chunk,
                                  .block = placement.block,
                                  .partial = tensor.partial_axes(),
                                  .weight_decay = false});
  }

  static void work(LayerWork& work, const BlockShape& shape) {
    const auto stream = [&](int times) { return array_bytes<Residual<P>>(shape.rows, shape.channels, times); };
    const auto normed = array_bytes<T>(shape.rows, shape.channels);
    work.forward.elementwise_bytes += stream(1) + normed;
    work.recompute_for_weight.elementwise_bytes += stream(1) + normed;
    work.backward_input.elementwise_bytes += stream(3) + normed;
    work.backward_weight.elementwise_bytes += stream(1) + normed;
  }

  /// saved.y = norm(x)
  void forward(const ExecSpace& exec, Stream x /* (R, C) */, Saved& saved) const {
    saved.x = x;
    if (kind_ == Norm::rmsnorm)
      return rmsnorm_forward<T, Residual<P>>(exec, saved.y, saved.rstd, x, weight(), eps_);
    layernorm_forward<T, Residual<P>>(exec, saved.y, saved.mean, saved.rstd, x, weight(),
                                      parameters_->weight(bias_, channels_), eps_);
  }

  /// dx = dstream + the gradient of the input; dstream may be dx
  void backward_input(const ExecSpace& exec, Stream dx /* (R, C) */, Stream dstream, Tensor<T, 2> dy /* (R, C) */,
                      const Saved& saved, const Gradients& gradients) const {
    if (kind_ == Norm::rmsnorm)
      return rmsnorm_backward_input<T, Residual<P>>(exec, dx, dstream, dy, saved.x, saved.rstd, weight(),
                                                    gradients.partial);
    layernorm_backward_input<T, Residual<P>>(exec, dx, dstream, dy, saved.x, saved.mean, saved.rstd, weight(),
                                             gradients.partial);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> dy /* (R, C) */, const Saved& saved,
                       const Gradients& gradients, State<T> beta) const {
    const Tensor<State<T>, 1> dweight = parameters_->gradient(weight_, channels_);
    if (kind_ == Norm::rmsnorm)
      return rmsnorm_backward_weight<T, Residual<P>>(exec, dweight, dy, saved.x, saved.rstd, beta, gradients.partial);
    const Tensor<State<T>, 1> dbias = parameters_->gradient(bias_, channels_);
    layernorm_backward_weight<T, Residual<P>>(exec, dweight, dbias, dy, saved.x, saved.mean, saved.rstd, beta,
                                              gradients.partial);
  }

 private:
  Tensor<T, 1> weight() const { return parameters_->weight(weight_, channels_); }  // (C)

  const ParameterStore<T>* parameters_;
  Norm kind_;
  double eps_;
  Index channels_;
  int weight_;
  int bias_ = 0;
};

}  // namespace espalier
