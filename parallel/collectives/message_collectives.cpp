// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Of MessageSet the collectives: as messages between all ranks, or by the MPI library.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_check.hpp"

namespace espalier {
namespace {

/// So many bytes as one MPI datatype, for counts beyond int.
class UnitType {
 public:
  explicit UnitType(std::size_t bytes) {
    if (bytes == 1)
      return;
    ESPALIER_MPI(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_));
    ESPALIER_MPI(MPI_Type_commit(&type_));
  }
  ~UnitType() {
    if (type_ != MPI_BYTE)
      MPI_Type_free(&type_);  // once what uses it has ended
  }
  UnitType(const UnitType&) = delete;
  UnitType& operator=(const UnitType&) = delete;
  operator MPI_Datatype() const { return type_; }  // NOLINT(google-explicit-constructor)

 private:
  MPI_Datatype type_ = MPI_BYTE;
};

/// Bytes in which to count the ranges: single ones up to `most`, else the most that divide all.
std::size_t unit_of(std::span<const ByteRange> ranges, std::size_t most) {
  std::size_t unit = 0;
  std::size_t end = 0;
  for (const ByteRange& range : ranges)
    if (range.bytes > 0) {
      unit = std::gcd(unit, std::gcd(range.begin, range.bytes));
      end = std::max(end, range.end());
    }
  if (end <= most)
    return 1;
  return unit <= most ? unit : std::gcd(unit, std::bit_floor(most));
}

std::size_t sum_of_bytes(std::span<const ByteRange> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::size_t{0},
                         [](std::size_t sum, const ByteRange& range) { return sum + range.bytes; });
}

}  // namespace

bool MessageSet::calls_library() const {
  const CommunicationContext& context = *state_->context;
  return link_ == nullptr && context.message_hook == nullptr && state_->size > context.max_direct_ranks;
}

void MessageSet::start_all_to_all(const void* input, std::span<const ByteRange> to, void* output,
                                  std::span<const ByteRange> from, int tag, bool stamped) {
  const int rank = state_->rank;
  const int size = state_->size;
  if (!calls_library()) {
    for (int step = 1; step < size; ++step) {
      const int peer = (rank - step + size) % size;
      const ByteRange& range = from[static_cast<std::size_t>(peer)];
      receive(static_cast<char*>(output) + range.begin, range.bytes, peer, tag, stamped);
    }
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      const ByteRange& range = to[static_cast<std::size_t>(peer)];
      send(static_cast<const char*>(input) + range.begin, range.bytes, peer, tag, stamped);
    }
    return;
  }
  if (stamped)
    gather_stamps();
  const std::size_t most = state_->context->max_message_bytes;
  const std::size_t unit_out = unit_of(to, most);
  const std::size_t unit_in = unit_of(from, most);
  const Slices& out = slices_in(unit_out, to, rank);
  const Slices& in = slices_in(unit_in, from, rank);
  const UnitType type_out(unit_out);
  const UnitType type_in(unit_in);
  MPI_Request& request = begin_collective(sum_of_bytes(to) - to[static_cast<std::size_t>(rank)].bytes);
  ESPALIER_MPI(MPI_Ialltoallv(input, out.counts.data(), out.displacements.data(), type_out, output, in.counts.data(),
                              in.displacements.data(), type_in, state_->handle, &request));
}

void MessageSet::start_all_gather(const void* own, void* output, std::span<const ByteRange> slices, int tag) {
  const int rank = state_->rank;
  const int size = state_->size;
  const ByteRange ours = slices[static_cast<std::size_t>(rank)];
  if (!calls_library()) {
    for (int step = 1; step < size; ++step) {
      const int peer = (rank - step + size) % size;
      const ByteRange& theirs = slices[static_cast<std::size_t>(peer)];
      receive(static_cast<char*>(output) + theirs.begin, theirs.bytes, peer, tag);
    }
    for (int step = 1; step < size; ++step)
      send(own, ours.bytes, (rank + step) % size, tag);
    return;
  }
  const std::size_t unit = unit_of(slices, state_->context->max_message_bytes);
  const Slices& all = slices_in(unit, slices, -1);
  const UnitType type(unit);
  const bool in_place = own == static_cast<char*>(output) + ours.begin;
  MPI_Request& request = begin_collective(ours.bytes * static_cast<std::size_t>(size - 1));
  ESPALIER_MPI(MPI_Iallgatherv(in_place ? MPI_IN_PLACE : own, static_cast<int>(ours.bytes / unit), type, output,
                               all.counts.data(), all.displacements.data(), type, state_->handle, &request));
}

void MessageSet::start_broadcast(void* data, std::size_t bytes, int root) {
  const std::size_t piece = state_->context->max_message_bytes;
  for (std::size_t begin = 0; begin < bytes; begin += piece) {
    const std::size_t count = std::min(piece, bytes - begin);
    MPI_Request& request = begin_collective(state_->rank == root ? count : 0);
    ESPALIER_MPI(MPI_Ibcast(static_cast<char*>(data) + begin, static_cast<int>(count), MPI_BYTE, root, state_->handle,
                            &request));
  }
}

void MessageSet::start_barrier() { ESPALIER_MPI(MPI_Ibarrier(state_->handle, &begin_collective(0))); }

/// In place of the stamps before messages: when each rank came to the collective that is started next.
void MessageSet::gather_stamps() {
  gathered_stamps_.assign(static_cast<std::size_t>(state_->size), 0);
  gathered_stamps_[static_cast<std::size_t>(state_->rank)] = state_->context->clock.now();
  ESPALIER_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DOUBLE, gathered_stamps_.data(), 1, MPI_DOUBLE, state_->handle,
                              &begin_collective(0)));
  --state_->traffic.messages;  // stamps are not counted
}

/// For the observers: the request names nobody, so others must know how far each rank has come.
MPI_Request& MessageSet::begin_collective(std::size_t bytes) {
  ++state_->traffic.messages;
  state_->traffic.bytes += bytes;
  state_->context->observers.collective_begins(state_->id, ++state_->num_collectives);
  messages_.push_back({.peer = -1, .bytes = 0, .incoming = true, .collective = state_->num_collectives});
  requests_.push_back(MPI_REQUEST_NULL);
  return requests_.back();
}

/// The ranges in units of so many bytes; none for rank `left_out`. MPI may read them until the collective ends.
const MessageSet::Slices& MessageSet::slices_in(std::size_t unit, std::span<const ByteRange> ranges, int left_out) {
  Slices& slices = slices_.emplace_back();
  for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
    const bool is_empty = static_cast<int>(rank) == left_out || ranges[rank].bytes == 0;
    ESPALIER_ASSERT(is_empty || ranges[rank].end() / unit <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                    "the slices of a collective have no common unit, and are beyond MPI's counts");
    slices.counts.push_back(is_empty ? 0 : static_cast<int>(ranges[rank].bytes / unit));
    slices.displacements.push_back(is_empty ? 0 : static_cast<int>(ranges[rank].begin / unit));
  }
  return slices;
}

/// The first that has not ended; 0: none is under way.
std::uint64_t MessageSet::pending_collective() const {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (messages_[i].collective > 0 &&
        (MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0))
      return messages_[i].collective;
  }
  return 0;
}

}  // namespace espalier
