// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/collectives/communication_context.hpp"

namespace espalier {

/// Bytes handed to MPI by this rank through one communicator; stamps (see MessageSet) are not counted.
struct Traffic {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
};

/// One direction of messages of one kind between two ranks, on a stream of its own, so that no other message delays it.
struct DeviceEdge {
  std::unique_ptr<DeviceLink> link;
  ExecSpace stream;
};

namespace impl {
/// The part of a Communicator that outlives it as long as messages are under way.
struct CommunicatorState {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<int> world_ranks;  // by rank
  std::shared_ptr<CommunicationContext> context;
  Traffic traffic;
  std::uint32_t id = 0;               // the same on its ranks, and unique among the communicators of each rank
  std::uint64_t num_collectives = 0;  // begun by the MPI library
  std::vector<std::uint64_t> begun;   // of them, by rank, as far as find_missing_ranks() has asked
  Tensor<unsigned char, 1> scratch;
  std::unique_ptr<DeviceLink> device_link;
  std::map<std::tuple<int, int, int>, DeviceEdge> device_edges;  // by tag, sender and receiver
  bool edges_are_paused = false;

  CommunicatorState() = default;
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;
  ~CommunicatorState();
};
}  // namespace impl

/// Owns a duplicated or split MPI communicator, so that our messages never match those of other code. It is passed
/// explicitly; there is no global one. Move-only.
class Communicator {
 public:
  /// Duplicates `parent` (collective).
  Communicator(MPI_Comm parent, std::string name, std::shared_ptr<CommunicationContext> context);
  Communicator(Communicator&&) = default;
  Communicator& operator=(Communicator&&) = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return state_->rank; }
  int size() const { return state_->size; }
  const std::string& name() const { return state_->name; }
  int world_rank(int rank) const { return state_->world_ranks[static_cast<std::size_t>(rank)]; }

  /// The communicator of all ranks that give the same `color` (not negative), ordered by `key`; collective.
  Communicator split(int color, int key, std::string name) const;

  /// Same ranks, separate messages; collective.
  Communicator duplicate(std::string name) const;

  /// From now on device links (NCCL) carry tensors between these ranks, enqueued on a stream. Without device links
  /// nothing changes. Collective.
  void open_device_link() const;

  /// The same for messages with `tag` from each rank to rank + `step`; with `is_ring` also from the last to the first.
  /// Collective.
  void open_device_edges(int tag, int step, bool is_ring) const;

  /// While they are paused MPI carries the messages. Collective, between messages.
  void pause_device_edges(bool pause) const { state_->edges_are_paused = pause; }

  /// nullptr: MPI carries them.
  DeviceLink* device_link() const { return state_->device_link.get(); }
  DeviceEdge* device_edge(int tag, int sender, int receiver) const;

  const Traffic& traffic() const { return state_->traffic; }

  /// Settings of the whole job, not of this communicator alone.
  const CommunicationContext& context() const { return *state_->context; }
  void set_deadline(double seconds) const { state_->context->wait.deadline_seconds = seconds; }

  /// Keeps the progress of this rank in `target`, say in a mapped file; nullptr (before the file is closed): back in
  /// memory of our own.
  void keep_progress_in(RankProgress* target) const { state_->context->rank_progress.keep_in(target); }
  /// All that observe this rank; among them:
  StepObservers& observers() const { return state_->context->observers; }
  ProgressWriter& rank_progress() const { return state_->context->rank_progress; }
  Timeline& timeline() const { return state_->context->timeline; }
  const JobClock& clock() const { return state_->context->clock; }

  /// For tests: larger groups leave collectives to the MPI library. All ranks alike, between messages.
  void set_max_direct_ranks(int ranks) const { state_->context->max_direct_ranks = ranks; }

  /// For tests: messages longer than this go in pieces.
  void set_max_message_bytes(std::size_t bytes) const { state_->context->max_message_bytes = bytes; }

  /// Device memory for messages that have no home of their own, kept and grown; valid until the next call.
  template <class T>
  Tensor<T, 1> scratch(Index count) const {
    return Tensor<T, 1>(reinterpret_cast<T*>(scratch_bytes(count * static_cast<Index>(sizeof(T)))), count);
  }

  MPI_Comm handle() const { return state_->handle; }
  const std::shared_ptr<impl::CommunicatorState>& state() const { return state_; }

 private:
  explicit Communicator(std::shared_ptr<impl::CommunicatorState> state) : state_(std::move(state)) {}
  unsigned char* scratch_bytes(Index bytes) const;

  std::shared_ptr<impl::CommunicatorState> state_;
};

}  // namespace espalier
