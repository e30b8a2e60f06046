// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/observe/job_clock.hpp"

#include <array>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_check.hpp"

namespace espalier {
namespace {

constexpr int num_round_trips = 8;

bool on_host_of_first_rank(const Communicator& world) {
  MPI_Comm handle;
  ESPALIER_MPI(MPI_Comm_split_type(world.handle(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &handle));
  const Communicator host(handle, "host", world.state()->context);
  ESPALIER_MPI(MPI_Comm_free(&handle));
  return host.world_rank(0) == world.world_rank(0);
}

double receive_value(const Communicator& world, int peer) {
  double value = 0;
  MessageSet messages(world);
  messages.receive(&value, sizeof(value), peer, tags::clock);
  messages.wait("the clock of another rank");
  return value;
}

void send_value(const Communicator& world, double value, int peer) {
  MessageSet messages(world);
  messages.send(&value, sizeof(value), peer, tags::clock);
  messages.wait("a rank that compares its clock");
}

double measure_difference(const Communicator& world) {
  std::array<RoundTrip, num_round_trips> trips{};
  for (RoundTrip& trip : trips) {
    trip.sent = JobClock::steady_seconds();
    send_value(world, trip.sent, 0);
    trip.answered = receive_value(world, 0);
    trip.returned = JobClock::steady_seconds();
  }
  return clock_difference(trips.data(), num_round_trips);
}

}  // namespace

double clock_difference(const RoundTrip* trips, int count) {
  const RoundTrip* best = trips;
  for (const RoundTrip* trip = trips; trip != trips + count; ++trip)
    if (trip->returned - trip->sent < best->returned - best->sent)
      best = trip;
  return best->answered - (best->sent + best->returned) / 2;
}

void synchronize_clocks(const Communicator& world) {
  double start = JobClock::steady_seconds();  // of rank 0
  broadcast(world, std::span<double>(&start, 1), 0);
  const double has_own_clock = on_host_of_first_rank(world) ? 0 : 1;
  if (world.rank() != 0) {
    send_value(world, has_own_clock, 0);
    if (has_own_clock != 0)
      start -= measure_difference(world);
  } else {
    std::vector<int> others;
    for (int rank = 1; rank < world.size(); ++rank)
      if (receive_value(world, rank) != 0)
        others.push_back(rank);
    for (const int rank : others)
      for (int trip = 0; trip < num_round_trips; ++trip) {
        receive_value(world, rank);
        send_value(world, JobClock::steady_seconds(), rank);
      }
  }
  world.state()->context->clock.set_start(start);
}

}  // namespace espalier
