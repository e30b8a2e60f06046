// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "core/parameter.hpp"
#include "core/work.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/rank_order.hpp"
#include "parallel/device/stream_clock.hpp"

namespace espalier {

template <class T>
class TimedCollectives;

/// A collective over a device link, between two marks of the stream's clock.
struct EnqueuedCollective {
  const char* what;
  int begin;
  int end;
};

/// The tensor axis as the layers see it: which part of a matrix is ours, and the conjugate pairs of Megatron
/// (Shoeybi et al., 2019; Korthikanti et al., 2022) between the two forms of the residual stream:
///
///   full   (N, C), the same on all tp ranks, where split matrices multiply;
///   local  (R, C) everywhere else: R = N, or with sequence parallelism our N/tp rows of it.
///
/// gather() is the way in, forward of a column-parallel layer and backward of a row-parallel one: nothing to do, or an
/// all_gather of rows. reduce() is the way out, forward of a row-parallel layer and backward of a column-parallel one:
/// all_reduce, or reduce_scatter of rows. For one rank both do nothing.
///
/// Where the residual stream has a type of its own, full forms and messages have the compute type T: gather() rounds,
/// and reduce() leaves its result in the workspace, for the caller to add to the stream.
template <class T>
class TensorParallel {
 public:
  /// One rank.
  TensorParallel() = default;
  /// `axis` must outlive this object.
  TensorParallel(const Communicator& axis, bool sequence_parallel)
      : axis_(&axis), rank_(axis.rank()), size_(axis.size()), sequence_parallel_(sequence_parallel && size_ > 1) {}
  /// Only the sizes, to plan memory for a rank that does not exist: communicates nothing.
  TensorParallel(int rank, int size, bool sequence_parallel)
      : rank_(rank), size_(size), sequence_parallel_(sequence_parallel && size > 1) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool sequence_parallel() const { return sequence_parallel_; }
  Shard shard(int dim) const { return {dim, rank_, size_}; }

  /// Our rows of the `rows` of a micro-batch, and the first of them. @pre they divide under sequence parallelism.
  Index local_rows(Index rows) const { return sequence_parallel_ ? rows / size_ : rows; }
  Index first_row(Index rows) const { return sequence_parallel_ ? rank_ * (rows / size_) : 0; }

  /// ParameterSpec::partial of a parameter that every tp rank holds whole and applies to its local rows.
  AxisSet partial_axes() const { return sequence_parallel_ ? AxisSet{Axis::tp} : AxisSet{}; }

  /// Memory (N, C) for the full form; the caller owns it.
  void use_workspace(Tensor<T, 2> full) { full_ = full; }

  /// The full form of `local`: itself, or gathered into the workspace, where it is valid until the next call.
  template <class Residual>
  Tensor<T, 2> gather(const ExecSpace& exec, const Tensor2<Residual>& local /* (R, C) */) const;

  /// Where to put the result of a matmul that is to be reduced for `local`: itself, or the workspace.
  template <class Residual>
  Tensor<T, 2> partial(const Tensor2<Residual>& local /* (R, C) */) const {
    if constexpr (std::is_same_v<T, Residual>)
      return sequence_parallel_ ? full_ : local;
    else
      return full_;
  }

  /// The sum over tp ranks of what they put into partial(local), or our rows of it. @returns (R, C): `local`, or, where
  /// that is of another type, our rows of the workspace, valid until the next call.
  template <class Residual>
  Tensor<T, 2> reduce(const ExecSpace& exec, const Tensor2<Residual>& local /* (R, C) */) const {
    Tensor<T, 2> ours;
    if constexpr (std::is_same_v<T, Residual>)
      ours = local;
    else
      ours = own_rows_of_workspace();
    sum_rows(exec, ours);
    return ours;
  }

  /// Our rows of the full form in the workspace.
  Tensor<T, 2> own_rows_of_workspace() const;

  /// How reduce() sums: rows of all tp ranks into `ours`, from there or under sequence parallelism from the workspace.
  void sum_over_ranks(const ExecSpace& exec, const Tensor<T, 2>& ours) const;
  /// Lets reduce() sum by `sum` instead, which may call sum_over_ranks().
  using RowSum = std::function<void(const ExecSpace& exec, const Tensor<T, 2>& ours)>;
  void sum_rows_by(RowSum sum) const { row_sum_ = std::move(sum); }

  /// Sum or maximum of per-row values over tp ranks, for softmax over a split vocabulary.
  void all_reduce_rows(const ExecSpace& exec, Tensor<State<T>, 1> values, ReduceOp op) const;

  /// Seconds spent in collectives of this axis so far: exposed, as the layers wait for them. Over a device link, where
  /// the host only enqueues them, 0: see TimedCollectives.
  double seconds() const { return seconds_; }

  /// Since TimedCollectives began.
  const std::vector<EnqueuedCollective>& enqueued() const { return enqueued_; }

 private:
  friend class TimedCollectives<T>;
  template <class F>
  void communicate(const char* what, const CollectiveWork& work, const F& collective) const;
  void sum_rows(const ExecSpace& exec, Tensor<T, 2> ours) const;

  const Communicator* axis_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  bool sequence_parallel_ = false;
  Tensor<T, 2> full_;
  mutable double seconds_ = 0;
  mutable StreamClock* stream_clock_ = nullptr;
  mutable std::vector<EnqueuedCollective> enqueued_;
  mutable RowSum row_sum_;
};

/// While it lives, collectives over a device link are timed by the clock of the stream that the layers run on.
template <class T>
class TimedCollectives {
 public:
  TimedCollectives(const TensorParallel<T>& tensor, StreamClock& clock) : tensor_(tensor) {
    tensor_.stream_clock_ = &clock;
    tensor_.enqueued_.clear();
  }
  ~TimedCollectives() { tensor_.stream_clock_ = nullptr; }
  TimedCollectives(const TimedCollectives&) = delete;
  TimedCollectives& operator=(const TimedCollectives&) = delete;

 private:
  const TensorParallel<T>& tensor_;
};

}  // namespace espalier
