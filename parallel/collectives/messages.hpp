// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collectives/byte_range.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Message tags, one for each purpose. Collectives have tags of their own: ranks that disagree about the next
/// collective run into the deadline instead of mixing up their data.
namespace tags {
inline constexpr int activations = 1;  ///< pipeline, forward
inline constexpr int gradients = 2;    ///< pipeline, backward
inline constexpr int data = 3;
inline constexpr int ready = 4;  ///< the receiver is ready
inline constexpr int all_reduce_scatter = 16384;
inline constexpr int all_reduce_gather = 16385;
inline constexpr int all_gather = 16386;
inline constexpr int reduce_scatter = 16387;
inline constexpr int broadcast = 16388;
inline constexpr int barrier = 16389;
inline constexpr int failure = 16390;
inline constexpr int clock = 16391;
inline constexpr int gather_texts = 16392;
inline constexpr int link_id = 16393;
inline constexpr int weights = 16394;
inline constexpr int missing_ranks = 16395;
inline constexpr int largest = 32767;  ///< the MPI standard promises no larger one
}  // namespace tags

/// Sends and receives that are waited for together. Every message of Espalier passes through here: only this class
/// counts bytes, cuts long messages, calls the hook, checks lengths and watches the deadline.
/// The caller keeps the buffers alive until test() or wait() says that all is done.
///
/// A message may be preceded by a timestamp: when it was sent, and when it may be received. With a hook that sets
/// arrivals every message has one, else those that both sides ask for. Timestamps are not counted as traffic.
class MessageSet {
 public:
  /// For memory that MPI reaches.
  explicit MessageSet(const Communicator& communicator) : state_(communicator.state()) {}
  /// For tensors: over `link`, enqueued on `stream`. test() and wait() then enqueue the messages and are done: what is
  /// enqueued next runs after them. Without a link (nullptr): by MPI.
  MessageSet(const Communicator& communicator, DeviceLink* link, const ExecSpace& stream)
      : state_(communicator.state()), link_(link) {
    if (link != nullptr)
      stream_ = stream;
  }
  MessageSet(MessageSet&&) = default;
  MessageSet& operator=(MessageSet&&) = delete;
  MessageSet(const MessageSet&) = delete;
  MessageSet& operator=(const MessageSet&) = delete;
  ~MessageSet();

  /// Messages of no bytes are left out on both sides.
  void send(const void* data, std::size_t bytes, int peer, int tag, bool stamped = false);
  void receive(void* data, std::size_t bytes, int peer, int tag, bool stamped = false);

  // Collectives: every rank of the communicator starts them, in one order. Groups of up to `max_direct_ranks` (see
  // CommunicationContext), and all groups with a hook or a device link, exchange messages directly; only these use the
  // tags. Larger groups call the MPI library, which counts as one message. Ranges are one for each rank; ours is not
  // sent.

  /// Range to[r] of `input` goes to rank r, whose message for us lands in range from[r] of `output`.
  void start_all_to_all(const void* input, std::span<const ByteRange> to, void* output, std::span<const ByteRange> from,
                        int tag, bool stamped = false);
  /// `own`, of slices[rank].bytes, goes to all; theirs land in `output`. Ours may be written there, too.
  void start_all_gather(const void* own, void* output, std::span<const ByteRange> slices, int tag);
  /// Only where calls_library().
  void start_broadcast(void* data, std::size_t bytes, int root);
  void start_barrier();
  /// Whether the MPI library carries the collectives of these ranks.
  bool calls_library() const;

  /// Keeps a copy of `owner`, which holds the memory of messages. A collective of the MPI library cannot be cancelled:
  /// a set that is destroyed before its collectives have ended leaks what it keeps.
  template <class Owner>
  void keep(const Owner& owner) {
    kept_.push_back(std::make_shared<const Owner>(owner));
  }

  /// Advances the messages; true when all are complete, after which the set is empty and can be used again.
  /// @throws Error (ExitCode::communication) on a failed message or one of another length than announced.
  [[nodiscard]] bool test();

  /// Calls `meanwhile` between polls.
  /// @throws Error (ExitCode::communication) as test(), and when the deadline passes: `what`, how long, which peers.
  void wait(const std::string& what, const std::function<void()>& meanwhile = {});

  /// @throws Error (ExitCode::communication): the deadline has passed.
  [[noreturn]] void give_up(const std::string& what, double seconds) const;

  /// Notifies the observers that this rank waits for these messages; again now and then, as some arrive.
  void note_wait(const std::string& what) const;
  void refresh_wait() const;

  /// When the stamped messages received last were sent (the latest of them), by the job's clock; 0: none yet.
  double sent_at() const { return sent_at_; }

  bool empty() const { return requests_.empty() && next_group_.empty(); }

 private:
  struct Stamp {
    double sent_at = 0;
    double arrives_at = 0;  // by the hook
  };
  struct Message {
    int peer;
    int bytes;
    bool incoming;
    std::uint64_t collective = 0;  // its number on the communicator, from 1; then the rest says nothing
  };
  struct Slices {  // as MPI counts them
    std::vector<int> counts;
    std::vector<int> displacements;
  };
  bool are_all_stamped() const;
  std::string describe(int peer) const;
  std::span<int> silent_peers(std::span<int> world_ranks) const;
  void check_lengths() const;
  void read_stamps();
  void require_success(int code);
  void enqueue_messages(const std::string& what);
  void post(const void* data, std::size_t bytes, int peer, int tag);
  void expect(void* data, std::size_t bytes, int peer, int tag);
  MPI_Request& begin_collective(std::size_t bytes);
  const Slices& slices_in(std::size_t unit, std::span<const ByteRange> ranges, int left_out);
  void gather_stamps();
  std::uint64_t pending_collective() const;
  void note_missing(std::span<const int> ranks) const;

  std::shared_ptr<impl::CommunicatorState> state_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;     // by request
  std::vector<MPI_Status> statuses_;  // kept for its capacity
  std::deque<Stamp> outgoing_stamps_;
  std::deque<Stamp> incoming_stamps_;
  std::vector<double> gathered_stamps_;  // by rank: when they began the collective
  std::deque<Slices> slices_;            // of collectives under way
  std::vector<std::shared_ptr<const void>> kept_;
  bool landed_ = false;  // MPI has received all; the hook may let them arrive later
  double arrives_at_ = 0;
  double sent_at_ = 0;
  DeviceLink* link_ = nullptr;
  std::optional<ExecSpace> stream_;        // none is made before Kokkos runs
  std::vector<DeviceMessage> next_group_;  // of the next group
};

/// Notifies the observers of this rank of one wait, if it is long enough to be seen.
class WaitNote {
 public:
  /// After each poll in vain. `what()` makes the text, once.
  template <class What>
  void update(const MessageSet& messages, double seconds, const What& what) {
    if (seconds < next_)
      return;
    next_ = seconds + 0.5;
    if (std::exchange(noted_, true))
      messages.refresh_wait();
    else
      messages.note_wait(what());
  }
  bool noted() const { return noted_; }

 private:
  double next_ = 1e-3;  // seconds
  bool noted_ = false;
};

}  // namespace espalier
