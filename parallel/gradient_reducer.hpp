// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/parameter.hpp"
#include "parallel/communicator.hpp"
#include "parallel/messages.hpp"
#include "parallel/mpi_buffer.hpp"

namespace espalier {

/// A run of the flat gradient array that is reduced together.
struct Bucket {
  Index offset = 0;
  Index size = 0;
  int first_segment = 0;  ///< the segments that it touches, last included
  int last_segment = 0;
};

/// Cuts segments (in flat order) into buckets of at most `bucket_elements`, last one first, as backward finishes them.
/// A bucket never mixes reduction groups, a long segment is cut into several buckets. Pure.
std::vector<Bucket> make_buckets(const std::vector<Segment>& segments, Index bucket_elements);

struct ReducerOptions {
  Index bucket_bytes = Index{25} << 20;
  int buckets_in_flight = 3;  ///< each costs a bucket of memory
};

struct ReducerStats {
  double exposed_seconds = 0;    ///< in wait(), since begin_step()
  std::uint64_t bytes_sent = 0;  ///< since begin_step()
};

/// Sums the gradients of all replicas while backward goes on. Per step: begin_step(); mark_ready(segment) as soon as a
/// segment's gradient is final (last micro-batch only); progress() now and then, as nothing moves during a kernel;
/// wait(), after which the flat array holds the sum over ranks, the same bits on every rank and in every run: each
/// rank owns a slice of each bucket and adds the others' values in rank order.
///
/// Buckets start in one order on all ranks, from the end of the array to its start, each as soon as it is full, those
/// before it have started and a place in flight is free. Segments never marked are reduced in wait(). All memory is
/// allocated in the constructor. For one rank there is nothing to do.
template <class S>
class GradientReducer {
 public:
  /// Collective. `gradients` must live as long as the reducer; kernels that fill it run on `exec`.
  GradientReducer(const ExecSpace& exec, const Communicator& communicator, const Tensor<S, 1>& gradients,
                  std::vector<Segment> segments, ReducerOptions options = {});

  /// Arms all buckets for the next reduction.
  void begin_step();

  /// The gradient of segments()[index] is final; its bucket's reduction starts now if that fills it.
  void mark_ready(int segment);

  /// Advances what is in flight without waiting.
  void progress();

  /// Completes all buckets, also those never marked.
  void wait();

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const std::vector<Segment>& segments() const { return segments_; }
  ReducerStats stats() const;

 private:
  enum class Stage { idle, collecting, distributing };  // idle; others' values arrive; sums go round
  struct Place {
    MessageSet messages;
    Stage stage = Stage::idle;
    int bucket = 0;
    Tensor<S, 1> received;  // (size - 1, slice)
    MpiBuffer<S> received_mpi;
  };

  Index slice_begin(const Bucket& bucket, int rank) const;
  Index slice_size(const Bucket& bucket, int rank) const {
    return slice_begin(bucket, rank + 1) - slice_begin(bucket, rank);
  }
  void start(Place& place);
  void distribute(Place& place);
  void finish(Place& place);
  bool all_done() const { return num_done_ == static_cast<int>(buckets_.size()); }

  ExecSpace exec_;
  Communicator communicator_;
  Tensor<S, 1> gradients_;
  MpiBuffer<S> gradients_mpi_;
  std::vector<Segment> segments_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  std::vector<int> missing_;  // by bucket: segments not marked yet
  std::vector<char> marked_;  // by segment
  int num_started_ = 0;
  int num_done_ = 0;
  double exposed_seconds_ = 0;
  std::uint64_t bytes_before_ = 0;
};

}  // namespace espalier
