// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor_parallel.hpp"

#include "parallel/collectives.hpp"

namespace espalier {
namespace {

constexpr long dropped_reduction = 2;  // of a rank's life, where PlantedFault::drop_all_reduce is planted

}  // namespace

template <class T>
template <class F>
void TensorParallel<T>::communicate(const char* what, const F& collective) const {
  if (size_ == 1)
    return;
  ESPALIER_ASSERT(axis_ != nullptr, std::string(what) + ": this object only plans");
  const double begin = axis_->clock().now();
  collective();
  const double end = axis_->clock().now();
  seconds_ += end - begin;
  if (axis_->timeline().is_on())
    axis_->timeline().record({.name = what, .category = "tensor_comm", .begin = begin, .end = end});
}

template <class T>
Tensor<T, 2> TensorParallel<T>::gather(const ExecSpace& exec, Tensor<T, 2> local) const {
  if (!sequence_parallel_)
    return local;
  communicate("gather", [&] { all_gather(exec, *axis_, full_, local); });
  return full_;
}

// What a missing reduction would leave: our own summand.
template <class T>
void TensorParallel<T>::drop(const ExecSpace& exec, Tensor<T, 2> local) const {
  const auto first = static_cast<std::size_t>(first_row(full_.extent(0)));
  if (sequence_parallel_)
    Kokkos::deep_copy(exec, local, Kokkos::subview(full_, std::pair(first, first + local.extent(0)), Kokkos::ALL));
}

template <class T>
void TensorParallel<T>::reduce(const ExecSpace& exec, Tensor<T, 2> local) const {
  communicate("reduce", [&] {
    if (axis_->context().planted_fault == PlantedFault::drop_all_reduce && ++reductions_ == dropped_reduction)
      return drop(exec, local);
    if (sequence_parallel_)
      reduce_scatter(exec, *axis_, local, full_);
    else
      all_reduce(exec, *axis_, local);
  });
}

template <class T>
void TensorParallel<T>::all_reduce_rows(const ExecSpace& exec, Tensor<State<T>, 1> values, ReduceOp op) const {
  communicate("all_reduce_rows", [&] { all_reduce(exec, *axis_, values, op); });
}

#define ESPALIER_INSTANTIATE(T) template class TensorParallel<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
