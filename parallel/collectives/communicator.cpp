// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "core/error.hpp"
#include "parallel/collectives/mpi_check.hpp"
#include "parallel/collectives/wait.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {
namespace {

// Of a GPU's 132, as on an H100: a message is carried while layers are computed, and may wait long for its receiver.
constexpr int blocks_of_an_edge = 4;

/// Of the name and the ranks, so that it says which communicator a rank is in. 0 is nobody's.
std::uint32_t id_of(const impl::CommunicatorState& state) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  const auto add = [&](std::uint32_t value) { hash = (hash ^ value) * 16777619u; };
  for (const char letter : state.name)
    add(static_cast<unsigned char>(letter));
  for (const int rank : state.world_ranks)
    add(static_cast<std::uint32_t>(rank));
  return std::max(hash, 1u);
}

/// Takes over `handle`.
std::shared_ptr<impl::CommunicatorState> make_state(MPI_Comm handle, std::string name,
                                                    std::shared_ptr<CommunicationContext> context) {
  auto state = std::make_shared<impl::CommunicatorState>();
  state->handle = handle;
  ESPALIER_MPI(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN));
  ESPALIER_MPI(MPI_Comm_rank(handle, &state->rank));
  ESPALIER_MPI(MPI_Comm_size(handle, &state->size));
  state->name = std::move(name);
  state->context = std::move(context);
  std::vector<int> ranks(static_cast<std::size_t>(state->size));
  std::iota(ranks.begin(), ranks.end(), 0);
  state->world_ranks.resize(ranks.size());
  MPI_Group group;
  MPI_Group world;
  ESPALIER_MPI(MPI_Comm_group(handle, &group));
  ESPALIER_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  ESPALIER_MPI(MPI_Group_translate_ranks(group, state->size, ranks.data(), world, state->world_ranks.data()));
  ESPALIER_MPI(MPI_Group_free(&group));
  ESPALIER_MPI(MPI_Group_free(&world));
  state->id = id_of(*state);
  if (state->size > state->context->max_direct_ranks)
    state->context->observers.collective_begins(state->id, 0);
  return state;
}

}  // namespace

impl::CommunicatorState::~CommunicatorState() {
  if (context != nullptr)
    context->observers.communicator_ends(id);
  // Freeing is collective: while an exception unwinds this rank, the others may be elsewhere.
  if (handle == MPI_COMM_NULL || std::uncaught_exceptions() > 0)
    return;
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0)
    MPI_Comm_free(&handle);
}

Communicator::Communicator(MPI_Comm parent, std::string name, std::shared_ptr<CommunicationContext> context) {
  MPI_Comm handle;
  MPI_Request request;
  ESPALIER_MPI(MPI_Comm_idup(parent, &handle, &request));  // MPI_Comm_dup spins, though other ranks need the core
  Waiter waiter(context->wait);
  for (int is_made = 0; is_made == 0;) {
    ESPALIER_MPI(MPI_Test(&request, &is_made, MPI_STATUS_IGNORE));
    if (is_made == 0 && !waiter.pause())
      throw Error(ExitCode::communication,
                  {.what = "a communicator was not made in time",
                   .where = name,
                   .got = fmt::format("waited {:.1f} s without success", waiter.seconds()),
                   .wanted = "all of its ranks to call for it",
                   .todo = "look for a rank that is stuck; if all are only slow, raise run.communication_timeout"});
  }
  state_ = make_state(handle, std::move(name), std::move(context));
}

Communicator Communicator::split(int color, int key, std::string name) const {
  MPI_Comm handle;
  ESPALIER_MPI(MPI_Comm_split(state_->handle, color, key, &handle));
  return Communicator(make_state(handle, std::move(name), state_->context));
}

void Communicator::open_device_link() const {
  if (size() == 1 || context().device_links == nullptr)
    return;
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  state_->device_link = context().device_links->connect(*this, members, name(), {});
}

void Communicator::open_device_edges(int tag, int step, bool is_ring) const {
  if (size() == 1 || context().device_links == nullptr)
    return;
  for (int sender = 0; sender < size(); ++sender) {  // in one order on all ranks: no two wait for each other
    const int receiver = (sender + step + size()) % size();
    if ((rank() != sender && rank() != receiver) || (!is_ring && receiver != sender + step))
      continue;
    const std::string edge_name = name() + " " + std::to_string(sender) + " to " + std::to_string(receiver);
    state_->device_edges.emplace(
        std::tuple(tag, sender, receiver),
        DeviceEdge{context().device_links->connect(*this, {std::min(sender, receiver), std::max(sender, receiver)},
                                                   edge_name, {.only_sender = sender, .max_blocks = blocks_of_an_edge}),
                   make_stream()});
  }
}

DeviceEdge* Communicator::device_edge(int tag, int sender, int receiver) const {
  const auto found = state_->device_edges.find({tag, sender, receiver});
  return found == state_->device_edges.end() || state_->edges_are_paused ? nullptr : &found->second;
}

Communicator Communicator::duplicate(std::string name) const {
  return {state_->handle, std::move(name), state_->context};
}

unsigned char* Communicator::scratch_bytes(Index bytes) const {
  if (bytes > static_cast<Index>(state_->scratch.extent(0))) {
    state_->scratch = {};  // freed first: the two need not be there together
    state_->scratch = allocate<unsigned char>(Category::communication, "scratch_" + state_->name, bytes);
  }
  return state_->scratch.data();
}

}  // namespace espalier
