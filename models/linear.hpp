// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/dropout.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/matmul.hpp"
#include "core/parameter.hpp"
#include "models/block_shape.hpp"
#include "parallel/collectives/tensor_parallel.hpp"

// y = x W^T, or + bias, with W (out, in), whose outputs or inputs are cut over the tensor axis of tp ranks. Layers are
// stateless between calls. N = B*T rows; R = N, or N/tp where sequence parallelism cuts the residual stream.

namespace espalier {

/// Where a layer stands: the model chunk of this rank and the position inside it, in forward order.
struct Placement {
  int chunk = 0;
  int block = 0;
};

inline ParameterSpec linear_weight(const std::string& layer, std::vector<Index> shape, Shard shard, Placement placement,
                                   double init_std) {
  return {.name = layer + ".weight",
          .shape = std::move(shape),
          .shard = shard,
          .chunk = placement.chunk,
          .block = placement.block,
          .init_std = init_std};
}

inline ParameterSpec linear_bias(const std::string& layer, std::vector<Index> shape, Shard shard, Placement placement,
                                 AxisSet partial) {
  return {.name = layer + ".bias",
          .shape = std::move(shape),
          .shard = shard,
          .chunk = placement.chunk,
          .block = placement.block,
          .partial = partial,
          .weight_decay = false};
}

/// Some of the outputs of a linear layer, which have a weight (out, in) and a bias (out) of their own.
struct LinearOutputs {
  std::string name;
  Index out = 0;
  std::string init_stream = {};  ///< of the weight: see ParameterSpec
  Index init_first = 0;
};

/// Each rank computes some of the outputs from all of the input: W is cut by rows, and the bias. Several weights of one
/// input are one matmul: on a rank they lie one below the other. With `copies`, so many consecutive ranks hold the same
/// outputs, and their gradients are summed.
template <class P>
class ColumnParallelLinear {
  using T = Compute<P>;

 public:
  ColumnParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                       const std::vector<LinearOutputs>& outputs, Index in, bool bias, Placement placement,
                       double init_std, int copies = 1)
      : parameters_(&parameters), tensor_(&tensor), in_(in), has_bias_(bias) {
    Shard shard = tensor.shard(0);
    shard = Shard{.dim = 0, .part = shard.part / copies, .parts = shard.parts / copies};
    const AxisSet partial = copies > 1 ? AxisSet{Axis::tp} : AxisSet{};
    const int tp_run = copies > 1 && copies < tensor.size() ? copies : 0;
    for (const LinearOutputs& part : outputs) {
      ParameterSpec weight = linear_weight(part.name, {part.out, in}, shard, placement, init_std);
      weight.partial = partial;
      weight.tp_run = tp_run;
      weight.joins_previous = &part != &outputs.front();
      weight.init_stream = part.init_stream;
      weight.init_first = part.init_first;
      last_weight_ = parameters.declare(weight);
      out_ += parameters.parameter(last_weight_).local_shape[0];
      if (!weight.joins_previous)
        first_weight_ = last_weight_;
      if (!bias)
        continue;
      ParameterSpec part_bias = linear_bias(part.name, {part.out}, shard, placement, partial);
      part_bias.tp_run = tp_run;
      part_bias.joins_previous = weight.joins_previous;
      last_bias_ = parameters.declare(part_bias);
      if (!weight.joins_previous)
        first_bias_ = last_bias_;
    }
  }

  /// The bias is added within the matmul, as most libraries do (core/ops/linear.hpp).
  /// @param out of this rank, out/tp
  static void work(LayerWork& work, const BlockShape& shape, Index out, Index in, bool bias) {
    const Index tokens = shape.tokens();
    add_gather<T>(work.forward, shape, in);
    work.forward.matmuls.push_back({tokens, out, in});
    work.backward_input.matmuls.push_back({tokens, in, out});
    add_reduce<T>(work.backward_input, shape, in);
    add_gather<T>(work.backward_weight, shape, in);
    work.backward_weight.matmuls.push_back({out, in, tokens});
    work.backward_weight.elementwise_bytes += bias ? array_bytes<T>(tokens, out) : 0;
  }

  void forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, out/tp) */, Tensor<T, 2> x /* (R, in) */) const {
    forward_gathered(exec, y, tensor_->gather(exec, x));
  }
  void forward_gathered(const ExecSpace& exec, Tensor<T, 2> y /* (N, out/tp) */, Tensor<T, 2> x /* (N, in) */) const {
    linear_forward<T>(exec, y, x, weight(), bias());
  }

  /// up is what forward() gives, y = gelu(up).
  void forward_gelu(const ExecSpace& exec, Tensor<T, 2> y /* (N, out/tp) */, Tensor<T, 2> up /* (N, out/tp) */,
                    Tensor<T, 2> x /* (R, in) */) const {
    linear_gelu_forward<T>(exec, y, up, tensor_->gather(exec, x), weight(), bias());
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, in), = */,
                      Tensor<T, 2> dy /* (N, out/tp) */) const {
    add_input_gradient(exec, tensor_->partial(dx), dy, 0);
    tensor_->reduce(exec, dx);
  }
  /// This rank's summand of dx: dx = dy W + beta dx.
  void add_input_gradient(const ExecSpace& exec, Tensor<T, 2> dx /* (N, in) */, Tensor<T, 2> dy /* (N, out/tp) */,
                          State<T> beta) const {
    matmul<T>(exec, dx, Transpose::no, dy, Transpose::no, weight(), State<T>(1), beta);
  }

  /// dW = dy^T x + beta dW, dbias = column sums of dy + beta dbias; beta 0 or 1.
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, in) */, Tensor<T, 2> dy /* (N, out/tp) */,
                       State<T> beta) const {
    backward_weight_gathered(exec, tensor_->gather(exec, x), dy, beta);
  }
  void backward_weight_gathered(const ExecSpace& exec, Tensor<T, 2> x /* (N, in) */, Tensor<T, 2> dy /* (N, out/tp) */,
                                State<T> beta) const {
    linear_backward_weight<T>(exec, parameters_->joined_gradient(first_weight_, last_weight_, out_, in_),
                              bias_gradient(), dy, x, beta);
  }

 private:
  Tensor<T, 2> weight() const {  // (out/tp, in)
    return parameters_->joined_weight(first_weight_, last_weight_, out_, in_);
  }
  Tensor<T, 1> bias() const {  // (out/tp), or empty
    return has_bias_ ? parameters_->joined_weight(first_bias_, last_bias_, out_) : Tensor<T, 1>();
  }
  Tensor<State<T>, 1> bias_gradient() const {
    return has_bias_ ? parameters_->joined_gradient(first_bias_, last_bias_, out_) : Tensor<State<T>, 1>();
  }

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  Index out_ = 0;  // of this rank, all outputs
  Index in_;
  bool has_bias_;
  int first_weight_ = 0, last_weight_ = 0, first_bias_ = 0, last_bias_ = 0;
};

/// Each rank holds some of the inputs and computes a partial sum of all outputs: W is cut by columns. Every rank holds
/// the bias, which is added once, after the sum. The output is added to the residual stream.
template <class P>
class RowParallelLinear {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;
  static constexpr bool one_type = std::is_same_v<T, Residual<P>>;

 public:
  RowParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index out,
                    Index in, bool bias, Placement placement, double init_std)
      : parameters_(&parameters), tensor_(&tensor), out_(out), has_bias_(bias) {
    weight_ = parameters.declare(linear_weight(name, {out, in}, tensor.shard(1), placement, init_std));
    if (bias)
      bias_ = parameters.declare(linear_bias(name, {out}, {}, placement, tensor.partial_axes()));
    in_ = parameters.parameter(weight_).local_shape[1];
  }

  /// @param in of this rank, in/tp
  static void work(LayerWork& work, const BlockShape& shape, Index out, Index in, bool bias) {
    const Index tokens = shape.tokens();
    work.forward.matmuls.push_back({tokens, out, in});
    add_reduce<T>(work.forward, shape, out);
    work.forward.elementwise_bytes += array_bytes<T>(shape.rows, out) + array_bytes<Residual<P>>(shape.rows, out, 2);
    add_gather<T>(work.backward_input, shape, out);
    work.backward_input.matmuls.push_back({tokens, in, out});
    add_gather<T>(work.backward_weight, shape, out);
    work.backward_weight.matmuls.push_back({out, in, tokens});
    work.backward_weight.elementwise_bytes += bias ? array_bytes<Residual<P>>(shape.rows, out) : 0;
  }

  /// y = residual + dropout(x W^T + bias)
  void forward_add(const ExecSpace& exec, Stream y /* (R, out) */, Tensor<T, 2> x /* (N, in/tp) */,
                   Stream residual /* (R, out) */, const Dropout& dropout) const {
    if constexpr (one_type)
      if (tensor_->size() == 1 && !dropout.is_on())
        return linear_add_forward<T>(exec, y, x, weight(), bias(), residual);
    matmul<T>(exec, tensor_->partial(y), Transpose::no, x, Transpose::yes, weight());
    const Tensor<T, 2> product = tensor_->reduce(exec, y);  // (R, out)
    if (dropout.is_on())
      return add_dropped<T, Residual<P>>(exec, y, product, bias(), residual, dropout);
    add_bias_and_residual<T, Residual<P>>(exec, y, product, bias(), residual);
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, in/tp), = */, Stream dy /* (R, out) */) const {
    matmul<T>(exec, dx, Transpose::no, tensor_->gather(exec, dy), Transpose::no, weight());
  }

  /// The same where x was gelu(up): dup is the gradient of that.
  void backward_input_gelu(const ExecSpace& exec, Tensor<T, 2> dup /* (N, in/tp), = */, Stream dy /* (R, out) */,
                           Tensor<T, 2> up /* (N, in/tp) */) const {
    linear_gelu_backward_input<T>(exec, dup, tensor_->gather(exec, dy), weight(), up);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (N, in/tp) */, Stream dy /* (R, out) */,
                       State<T> beta) const {
    const Tensor<State<T>, 2> dweight = parameters_->gradient(weight_, out_, in_);  // (out, in/tp)
    const Tensor<State<T>, 1> dbias =
        has_bias_ ? parameters_->gradient(bias_, out_) : Tensor<State<T>, 1>();  // (out), or empty
    if constexpr (one_type)
      if (tensor_->size() == 1)
        return linear_backward_weight<T>(exec, dweight, dbias, dy, x, beta);
    matmul<T, State<T>>(exec, dweight, Transpose::yes, tensor_->gather(exec, dy), Transpose::no, x, State<T>(1), beta);
    if (has_bias_)
      bias_backward<Residual<P>>(exec, dbias, dy, beta);
  }

 private:
  Tensor<T, 2> weight() const { return parameters_->weight(weight_, out_, in_); }  // (out, in/tp)
  Tensor<T, 1> bias() const {                                                      // (out), or empty
    return has_bias_ ? parameters_->weight(bias_, out_) : Tensor<T, 1>();
  }

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  Index out_;
  Index in_ = 0;  // of this rank
  bool has_bias_;
  int weight_ = 0;
  int bias_ = 0;
};

}  // namespace espalier
