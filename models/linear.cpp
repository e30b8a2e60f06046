// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/linear.hpp"

#include "core/ops/elementwise.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/matmul.hpp"

namespace espalier {
namespace {

ParameterSpec placed(const std::string& name, std::vector<Index> shape, Shard shard, Placement placement) {
  return {.name = name, .shape = std::move(shape), .shard = shard, .chunk = placement.chunk, .block = placement.block};
}

ParameterSpec weight_spec(const std::string& layer, std::vector<Index> shape, Shard shard, Placement placement,
                          double init_std) {
  ParameterSpec spec = placed(layer + ".weight", std::move(shape), shard, placement);
  spec.init_std = init_std;
  return spec;
}

ParameterSpec bias_spec(const std::string& layer, std::vector<Index> shape, Shard shard, Placement placement,
                        ReductionGroup group) {
  ParameterSpec spec = placed(layer + ".bias", std::move(shape), shard, placement);
  spec.group = group;
  spec.weight_decay = false;
  return spec;
}

}  // namespace

template <class T>
ColumnParallelLinear<T>::ColumnParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                              const std::string& name, std::vector<Index> weight_shape,
                                              Placement placement, double init_std)
    : parameters_(&parameters), tensor_(&tensor), in_(weight_shape.back()) {
  const std::vector<Index> bias_shape(weight_shape.begin(), weight_shape.end() - 1);
  const Shard shard = tensor.shard(static_cast<int>(bias_shape.size()) - 1);
  weight_ = parameters.declare(weight_spec(name, weight_shape, shard, placement, init_std));
  bias_ = parameters.declare(bias_spec(name, bias_shape, shard, placement, ReductionGroup::replicas));
  out_ = parameters.parameter(bias_).size;
}

template <class T>
void ColumnParallelLinear<T>::forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x) const {
  linear_forward<T>(exec, y, tensor_->gather(exec, x), parameters_->weight(weight_, out_, in_),
                    parameters_->weight(bias_, out_));
}

template <class T>
void ColumnParallelLinear<T>::forward_gelu(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> up,
                                           Tensor<T, 2> x) const {
  linear_gelu_forward<T>(exec, y, up, tensor_->gather(exec, x), parameters_->weight(weight_, out_, in_),
                         parameters_->weight(bias_, out_));
}

template <class T>
void ColumnParallelLinear<T>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<T, 2> dy) const {
  matmul<T>(exec, tensor_->partial(dx), Transpose::no, dy, Transpose::no, parameters_->weight(weight_, out_, in_));
  tensor_->reduce(exec, dx);
}

template <class T>
void ColumnParallelLinear<T>::backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<T, 2> dy,
                                              State<T> beta) const {
  linear_backward_weight<T>(exec, parameters_->gradient(weight_, out_, in_), parameters_->gradient(bias_, out_), dy,
                            tensor_->gather(exec, x), beta);
}

template <class T, class Residual>
RowParallelLinear<T, Residual>::RowParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                                  const std::string& name, Index out, Index in, Placement placement,
                                                  double init_std)
    : parameters_(&parameters), tensor_(&tensor), out_(out) {
  weight_ = parameters.declare(weight_spec(name, {out, in}, tensor.shard(1), placement, init_std));
  bias_ = parameters.declare(bias_spec(name, {out}, {}, placement, tensor.replicated_group()));
  in_ = parameters.parameter(weight_).local_shape[1];
}

template <class T, class Residual>
void RowParallelLinear<T, Residual>::forward_add(const ExecSpace& exec, Tensor<Residual, 2> y, Tensor<T, 2> x,
                                                 Tensor<Residual, 2> residual) const {
  if constexpr (std::is_same_v<T, Residual>)
    if (tensor_->size() == 1)
      return linear_add_forward<T>(exec, y, x, parameters_->weight(weight_, out_, in_),
                                   parameters_->weight(bias_, out_), residual);
  matmul<T>(exec, tensor_->partial(y), Transpose::no, x, Transpose::yes, parameters_->weight(weight_, out_, in_));
  const Tensor<T, 2> product = tensor_->reduce(exec, y);  // (R, out)
  add_bias_and_residual<T, Residual>(exec, y, product, parameters_->weight(bias_, out_), residual);
}

template <class T, class Residual>
void RowParallelLinear<T, Residual>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx,
                                                    Tensor<Residual, 2> dy) const {
  matmul<T>(exec, dx, Transpose::no, tensor_->gather(exec, dy), Transpose::no, parameters_->weight(weight_, out_, in_));
}

template <class T, class Residual>
void RowParallelLinear<T, Residual>::backward_input_gelu(const ExecSpace& exec, Tensor<T, 2> dup,
                                                         Tensor<Residual, 2> dy, Tensor<T, 2> up) const {
  linear_gelu_backward_input<T>(exec, dup, tensor_->gather(exec, dy), parameters_->weight(weight_, out_, in_), up);
}

template <class T, class Residual>
void RowParallelLinear<T, Residual>::backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<Residual, 2> dy,
                                                     State<T> beta) const {
  if constexpr (std::is_same_v<T, Residual>)
    if (tensor_->size() == 1)
      return linear_backward_weight<T>(exec, parameters_->gradient(weight_, out_, in_),
                                       parameters_->gradient(bias_, out_), dy, x, beta);
  matmul<T, State<T>>(exec, parameters_->gradient(weight_, out_, in_), Transpose::yes, tensor_->gather(exec, dy),
                      Transpose::no, x, State<T>(1), beta);
  bias_backward<Residual>(exec, parameters_->gradient(bias_, out_), dy, beta);
}

#define ESPALIER_INSTANTIATE(T) template class ColumnParallelLinear<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R) template class RowParallelLinear<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
