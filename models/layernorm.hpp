// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/layernorm.hpp"
#include "models/linear.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// Layer normalisation with weight and bias (core/ops/layernorm), of the rows that this rank has of the residual
/// stream: R of them, C channels. Under sequence parallelism its gradients are summed over the tensor axis.
template <class P>
class LayerNorm {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    Stream x;                  ///< (R, C), the input, owned by whoever made it
    Tensor<T, 2> y;            ///< (R, C), the output, which the next product needs again
    Tensor<State<T>, 1> mean;  ///< (R)
    Tensor<State<T>, 1> rstd;  ///< (R)

    template <class Visit>
    void each(Visit& visit, Index rows, Index channels) {
      visit(y, SavedArray{"norm.y", MadeBy::elementwise, ReadBy::backward_weight}, rows, channels);
      visit(mean, SavedArray{"norm.mean", MadeBy::elementwise, ReadBy::both_parts}, rows);
      visit(rstd, SavedArray{"norm.rstd", MadeBy::elementwise, ReadBy::both_parts}, rows);
    }
  };
  /// What backward_input leaves for backward_weight, where it leaves anything.
  struct Gradients {
    Tensor<State<T>, 2> partial;  ///< (P, 2C), see layernorm_partial_rows

    static Gradients take(Arena& arena, Index rows, Index channels) {
      return {arena.take<State<T>>(layernorm_partial_rows(rows, channels), 2 * channels)};
    }
  };

  LayerNorm(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index channels,
            Placement placement)
      : parameters_(&parameters),
        channels_(channels),
        weight_(parameters.declare({.name = name + ".weight",
                                    .shape = {channels},
                                    .chunk = placement.chunk,
                                    .block = placement.block,
                                    .partial = tensor.partial_axes(),
                                    .weight_decay = false,
                                    .init_mean = 1})),
        bias_(parameters.declare({.name = name + ".bias",
                                  .shape = {channels},
                                  .chunk = placement.chunk,
                                  .block = placement.block,
                                  .partial = tensor.partial_axes(),
                                  .weight_decay = false})) {}

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
    layernorm_forward<T, Residual<P>>(exec, saved.y, saved.mean, saved.rstd, x, parameters_->weight(weight_, channels_),
                                      parameters_->weight(bias_, channels_));
  }

  /// dx = dstream + the gradient of the input; dstream may be dx
  void backward_input(const ExecSpace& exec, Stream dx /* (R, C) */, Stream dstream, Tensor<T, 2> dy /* (R, C) */,
                      const Saved& saved, const Gradients& gradients) const {
    layernorm_backward_input<T, Residual<P>>(exec, dx, dstream, dy, saved.x, saved.mean, saved.rstd,
                                             parameters_->weight(weight_, channels_), gradients.partial);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> dy /* (R, C) */, const Saved& saved,
                       const Gradients& gradients, State<T> beta) const {
    const Tensor<State<T>, 1> dweight = parameters_->gradient(weight_, channels_);
    const Tensor<State<T>, 1> dbias = parameters_->gradient(bias_, channels_);
    if (gradients.partial.extent(0) > 0)
      layernorm_backward_weight<State<T>>(exec, dweight, dbias, gradients.partial, beta);
    else
      layernorm_backward_weight<T, Residual<P>>(exec, dweight, dbias, dy, saved.x, saved.mean, saved.rstd, beta);
  }

 private:
  const ParameterStore<T>* parameters_;
  Index channels_;
  int weight_;
  int bias_;
};

}  // namespace espalier
