// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/tensor_parallel.hpp"

#include "core/ops/elementwise.hpp"
#include "core/work.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/device/stream_graph.hpp"

namespace espalier {
namespace {

template <class View>
CollectiveWork work_of(Collective kind, const View& whole) {
  return {kind, static_cast<Index>(whole.size()), sizeof(typename View::value_type)};
}

}  // namespace

// Each time anew where a graph has the kernels around it: `collective` keeps what it needs.
template <class T>
template <class F>
void TensorParallel<T>::communicate(const char* what, const CollectiveWork& work, const F& collective) const {
  if (size_ == 1)
    return;
  count_work(work);
  ESPALIER_ASSERT(axis_ != nullptr, std::string(what) + ": this object only plans");
  call_each_time([this, what, collective] {
    if (axis_->device_link() != nullptr) {  // only enqueued here
      const int begin = stream_clock_ != nullptr ? stream_clock_->mark() : 0;
      collective();
      if (stream_clock_ != nullptr)
        enqueued_.push_back({what, begin, stream_clock_->mark()});
      return;
    }
    const double begin = axis_->clock().now();
    collective();
    const double end = axis_->clock().now();
    seconds_ += end - begin;
    axis_->observers().spent({.what = what, .phase = Phase::tensor_comm, .begin = begin, .end = end});
  });
}

template <class T>
Tensor<T, 2> TensorParallel<T>::own_rows_of_workspace() const {
  const auto channels = static_cast<Index>(full_.extent(1));
  const auto rows = static_cast<Index>(full_.extent(0));
  return Tensor<T, 2>(full_.data() + first_row(rows) * channels, local_rows(rows), channels);
}

template <class T>
template <class Residual>
Tensor<T, 2> TensorParallel<T>::gather(const ExecSpace& exec, const Tensor2<Residual>& local) const {
  if constexpr (std::is_same_v<T, Residual>) {
    if (!sequence_parallel_)
      return local;
    communicate("gather", work_of(Collective::all_gather, full_),
                [=, this] { all_gather(exec, *axis_, full_, local); });
  } else {
    const Tensor<T, 2> ours = own_rows_of_workspace();
    convert<T, Residual>(exec, flatten(ours), flatten(local));
    if (sequence_parallel_)
      communicate("gather", work_of(Collective::all_gather, full_),
                  [=, this] { all_gather(exec, *axis_, full_, ours); });
  }
  return full_;
}

template <class T>
void TensorParallel<T>::sum_over_ranks(const ExecSpace& exec, const Tensor<T, 2>& ours) const {
  if (sequence_parallel_)
    reduce_scatter(exec, *axis_, ours, full_);
  else
    all_reduce(exec, *axis_, ours);
}

template <class T>
void TensorParallel<T>::sum_rows(const ExecSpace& exec, Tensor<T, 2> ours) const {
  const CollectiveWork work =
      sequence_parallel_ ? work_of(Collective::reduce_scatter, full_) : work_of(Collective::all_reduce, ours);
  communicate("reduce", work, [=, this] { row_sum_ ? row_sum_(exec, ours) : sum_over_ranks(exec, ours); });
}

template <class T>
void TensorParallel<T>::all_reduce_rows(const ExecSpace& exec, Tensor<State<T>, 1> values, ReduceOp op) const {
  communicate("all_reduce_rows", work_of(Collective::all_reduce, values),
              [=, this] { all_reduce(exec, *axis_, values, op); });
}

#define ESPALIER_INSTANTIATE(T) template class TensorParallel<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R) \
  template Tensor<T, 2> TensorParallel<T>::gather<R>(const ExecSpace&, const Tensor2<R>&) const;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
