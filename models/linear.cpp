// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/linear.hpp"

#include <functional>
#include <numeric>

#include "core/ops/elementwise.hpp"
#include "core/ops/matmul.hpp"

namespace espalier {

template <class T>
Linear<T>::Linear(ParameterStore<T>& parameters, const std::string& name, std::vector<Index> weight_shape,
                  Placement placement, double init_std)
    : parameters_(&parameters),
      out_(std::accumulate(weight_shape.begin(), weight_shape.end() - 1, Index{1}, std::multiplies<>())),
      in_(weight_shape.back()),
      weight_(parameters.declare({.name = name + ".weight",
                                  .shape = weight_shape,
                                  .chunk = placement.chunk,
                                  .block = placement.block,
                                  .init_std = init_std})),
      bias_(parameters.declare({.name = name + ".bias",
                                .shape = {weight_shape.begin(), weight_shape.end() - 1},
                                .chunk = placement.chunk,
                                .block = placement.block,
                                .weight_decay = false})) {}

template <class T>
void Linear<T>::forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x) const {
  fill_with_bias<T>(exec, y, parameters_->weight(bias_, out_));
  matmul<T>(exec, y, Transpose::no, x, Transpose::yes, parameters_->weight(weight_, out_, in_), T(1), T(1));
}

template <class T>
void Linear<T>::forward_add(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> residual) const {
  fill_with_bias_and_residual<T>(exec, y, parameters_->weight(bias_, out_), residual);
  matmul<T>(exec, y, Transpose::no, x, Transpose::yes, parameters_->weight(weight_, out_, in_), T(1), T(1));
}

template <class T>
void Linear<T>::backward_input(const ExecSpace& exec, Tensor<T, 2> dx, Tensor<T, 2> dy) const {
  matmul<T>(exec, dx, Transpose::no, dy, Transpose::no, parameters_->weight(weight_, out_, in_));
}

template <class T>
void Linear<T>::backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<T, 2> dy) const {
  matmul<T>(exec, parameters_->gradient(weight_, out_, in_), Transpose::yes, dy, Transpose::no, x, T(1), T(1));
  bias_backward<T>(exec, parameters_->gradient(bias_, out_), dy);
}

template class Linear<float>;
template class Linear<double>;

}  // namespace espalier
