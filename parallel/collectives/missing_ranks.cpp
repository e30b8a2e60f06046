// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/missing_ranks.hpp"

#include <mpi.h>

#include <chrono>
#include <thread>

#include "parallel/collectives/messages.hpp"

namespace espalier::impl {
namespace {

using namespace std::chrono_literals;
constexpr auto window = 1s;  // who waits answers twice a second

struct BegunCount {
  std::uint64_t begun = 0;  // collectives of the communicator
  bool is_question = false;
};

// MPI's return codes are not looked at here: the job ends, and what can be said is said.
void send_count(const CommunicatorState& communicator, int peer, bool is_question) {
  auto* const count =
      new BegunCount{communicator.num_collectives, is_question};  // never completed: it goes out at once
  MPI_Request request;
  MPI_Isend(count, sizeof *count, MPI_BYTE, peer, tags::missing_ranks, communicator.handle, &request);
}

/// Keeps what has come, and answers it.
void receive_counts(CommunicatorState& communicator) {
  communicator.begun.resize(static_cast<std::size_t>(communicator.size));
  for (;;) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tags::missing_ranks, communicator.handle, &found, &status) != MPI_SUCCESS ||
        found == 0)
      return;
    BegunCount count;
    MPI_Recv(&count, sizeof count, MPI_BYTE, status.MPI_SOURCE, tags::missing_ranks, communicator.handle,
             MPI_STATUS_IGNORE);
    communicator.begun[static_cast<std::size_t>(status.MPI_SOURCE)] = count.begun;
    if (count.is_question)
      send_count(communicator, status.MPI_SOURCE, false);
  }
}

}  // namespace

std::vector<int> find_missing_ranks(CommunicatorState& communicator, std::uint64_t collective) {
  for (int peer = 0; peer < communicator.size; ++peer)
    if (peer != communicator.rank)
      send_count(communicator, peer, true);
  const auto start = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - start < window; std::this_thread::sleep_for(1ms))
    receive_counts(communicator);
  std::vector<int> missing;
  for (int rank = 0; rank < communicator.size; ++rank)
    if (rank != communicator.rank && communicator.begun[static_cast<std::size_t>(rank)] < collective)
      missing.push_back(rank);
  return missing;
}

void answer_missing_ranks(CommunicatorState& communicator) { receive_counts(communicator); }

}  // namespace espalier::impl
