// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/roll_call.hpp"

#include <mpi.h>

#include <chrono>
#include <thread>

#include "parallel/collectives/messages.hpp"

namespace espalier::impl {
namespace {

using namespace std::chrono_literals;
constexpr auto window = 1500ms;  // who waits answers about every second

struct Word {
  std::uint64_t begun = 0;  // collectives of the communicator
  bool is_question = false;
};

// MPI's return codes are not looked at here: the job ends, and what can be said is said.
void tell(const CommunicatorState& communicator, int peer, bool is_question) {
  auto* const word = new Word{communicator.num_collectives, is_question};  // never completed: it goes out at once
  MPI_Request request;
  MPI_Isend(word, sizeof *word, MPI_BYTE, peer, tags::roll_call, communicator.handle, &request);
}

/// Keeps what has come, and answers it.
void hear(CommunicatorState& communicator) {
  communicator.begun.resize(static_cast<std::size_t>(communicator.size));
  for (;;) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tags::roll_call, communicator.handle, &found, &status) != MPI_SUCCESS || found == 0)
      return;
    Word word;
    MPI_Recv(&word, sizeof word, MPI_BYTE, status.MPI_SOURCE, tags::roll_call, communicator.handle, MPI_STATUS_IGNORE);
    communicator.begun[static_cast<std::size_t>(status.MPI_SOURCE)] = word.begun;
    if (word.is_question)
      tell(communicator, status.MPI_SOURCE, false);
  }
}

}  // namespace

std::vector<int> call_roll(CommunicatorState& communicator, std::uint64_t collective) {
  for (int peer = 0; peer < communicator.size; ++peer)
    if (peer != communicator.rank)
      tell(communicator, peer, true);
  const auto start = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - start < window; std::this_thread::sleep_for(1ms))
    hear(communicator);
  std::vector<int> missing;
  for (int rank = 0; rank < communicator.size; ++rank)
    if (rank != communicator.rank && communicator.begun[static_cast<std::size_t>(rank)] < collective)
      missing.push_back(rank);
  return missing;
}

void answer_roll_call(CommunicatorState& communicator) { hear(communicator); }

}  // namespace espalier::impl
