// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor_parallel.hpp"

#include <chrono>

#include "parallel/collectives.hpp"

namespace espalier {

template <class T>
template <class F>
void TensorParallel<T>::communicate(const char* what, const F& collective) const {
  if (size_ == 1)
    return;
  ESPALIER_ASSERT(axis_ != nullptr, std::string(what) + ": this object only plans");
  const auto start = std::chrono::steady_clock::now();
  collective();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
Tensor<T, 2> TensorParallel<T>::gather(const ExecSpace& exec, Tensor<T, 2> local) const {
  if (!sequence_parallel_)
    return local;
  communicate("TensorParallel::gather", [&] { all_gather(exec, *axis_, full_, local); });
  return full_;
}

template <class T>
void TensorParallel<T>::reduce(const ExecSpace& exec, Tensor<T, 2> local) const {
  communicate("TensorParallel::reduce", [&] {
    if (sequence_parallel_)
      reduce_scatter(exec, *axis_, local, full_);
    else
      all_reduce(exec, *axis_, local);
  });
}

template <class T>
void TensorParallel<T>::all_reduce_rows(const ExecSpace& exec, Tensor<State<T>, 1> values, ReduceOp op) const {
  communicate("TensorParallel::all_reduce_rows", [&] { all_reduce(exec, *axis_, values, op); });
}

template class TensorParallel<float>;
template class TensorParallel<double>;

}  // namespace espalier
