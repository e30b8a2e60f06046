// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "core/flat_storage.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/reduction/bucket_group.hpp"

namespace espalier {

/// ZeRO-3: gathers the weights of whole layers (FSDP units) from their shards, as a list of actions
/// (parallel/schedule/unit_actions.hpp) says. Without units there is nothing to do. Over many replicas, too, it is one
/// all_gather. It needs no second level as sums do: a rank sends the same to all, so the library can forward it.
template <class T>
class WeightGatherer {
 public:
  /// Collective over all communicators. Kernels that use weights run on `exec`; `plan` is that of the gradients'
  /// reduction, whose `gather_buckets` say which rank holds what.
  WeightGatherer(const ExecSpace& exec, const ReductionCommunicators& communicators, const FlatStorage<T>& weights,
                 const ReductionPlan& plan);

  /// Starts the all_gather of the unit's weights into its buffer; in one order on all ranks of a communicator.
  void gather(int unit);

  /// Waits for the all_gather: kernels that follow see the weights of the unit. Calls `meanwhile` between polls.
  /// @throws Error (communication) after the deadline
  void acquire(int unit, const std::function<void()>& meanwhile = {});

  /// No more kernels use the weights: the buffer may take another unit.
  void release(int unit);

  bool has_units() const { return !weights_.units().empty(); }
  std::uint64_t bytes_sent() const;  ///< so far

 private:
  struct Buffer {
    int unit = -1;  // that lies in it, or is on its way
    bool has_come = false;
    bool is_in_use = false;
    double began = 0;
    std::vector<MessageSet> messages;  // by group
  };

  Buffer& buffer_of(int unit) { return buffers_[static_cast<std::size_t>(weights_.buffer_of(unit))]; }
  void finish(int unit, const std::function<void()>& meanwhile);
  template <class F>
  void for_each_bucket(int unit, const F& f);

  ExecSpace exec_;
  FlatStorage<T> weights_;
  ReductionPlan plan_;
  std::deque<BucketGroup> groups_;  // they stay where they are
  std::vector<Buffer> buffers_;
  MpiBuffer<T> held_;   // of weights_.values()
  MpiBuffer<T> units_;  // of weights_.buffers()
};

}  // namespace espalier
