// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/messages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "parallel/collectives/missing_ranks.hpp"
#include "parallel/collectives/mpi_check.hpp"

namespace espalier {
MessageSet::~MessageSet() {
  // Only after an error are there messages left. A receive is called back, so that nothing lands in freed memory.
  int finalized = 0;
  if (requests_.empty() || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  if (pending_collective() > 0) {  // which MPI neither cancels nor frees
    new auto(std::move(kept_));
    new auto(std::move(slices_));
    new auto(std::move(gathered_stamps_));
    new auto(state_);
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || messages_[i].collective > 0)
      continue;
    if (messages_[i].incoming && MPI_Cancel(&requests_[i]) == MPI_SUCCESS)
      MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);  // local: the receive is either cancelled or complete
    else
      MPI_Request_free(&requests_[i]);
  }
  if (!outgoing_stamps_.empty() && !landed_)
    new std::deque<Stamp>(std::move(outgoing_stamps_));  // MPI may still read them
}

bool MessageSet::are_all_stamped() const {
  const MessageHook* const hook = state_->context->message_hook.get();
  return hook != nullptr && hook->sets_arrivals();
}

void MessageSet::send(const void* data, std::size_t bytes, int peer, int tag, bool stamped) {
  CommunicationContext& context = *state_->context;
  if (bytes == 0)
    return;
  if (link_ != nullptr) {
    next_group_.push_back({const_cast<void*>(data), bytes, peer, false});
    ++state_->traffic.messages;
    state_->traffic.bytes += bytes;
    return;
  }
  if (context.message_hook != nullptr)
    context.message_hook->before_send();
  if (stamped || are_all_stamped()) {
    const auto world_rank = [&](int rank) { return state_->world_ranks[static_cast<std::size_t>(rank)]; };
    Stamp& stamp = outgoing_stamps_.emplace_back();
    stamp.sent_at = context.clock.now();
    if (are_all_stamped())
      stamp.arrives_at = context.message_hook->arrives_at(
          {state_->name, world_rank(state_->rank), world_rank(peer), bytes, stamp.sent_at});
    post(&stamp, sizeof(Stamp), peer, tag);
  }
  for (std::size_t begin = 0; begin < bytes; begin += context.max_message_bytes) {
    post(static_cast<const char*>(data) + begin, std::min(context.max_message_bytes, bytes - begin), peer, tag);
    ++state_->traffic.messages;
  }
  state_->traffic.bytes += bytes;
}

void MessageSet::post(const void* data, std::size_t bytes, int peer, int tag) {
  const int count = static_cast<int>(bytes);
  messages_.push_back({peer, count, false});
  requests_.push_back(MPI_REQUEST_NULL);
  ESPALIER_MPI(MPI_Isend(data, count, MPI_BYTE, peer, tag, state_->handle, &requests_.back()));
}

void MessageSet::receive(void* data, std::size_t bytes, int peer, int tag, bool stamped) {
  if (bytes == 0)
    return;
  if (link_ != nullptr) {
    next_group_.push_back({data, bytes, peer, true});
    return;
  }
  if (stamped || are_all_stamped())
    expect(&incoming_stamps_.emplace_back(), sizeof(Stamp), peer, tag);
  const std::size_t piece = state_->context->max_message_bytes;
  for (std::size_t begin = 0; begin < bytes; begin += piece)
    expect(static_cast<char*>(data) + begin, std::min(piece, bytes - begin), peer, tag);
}

void MessageSet::expect(void* data, std::size_t bytes, int peer, int tag) {
  const int count = static_cast<int>(bytes);
  messages_.push_back({peer, count, true});
  requests_.push_back(MPI_REQUEST_NULL);
  ESPALIER_MPI(MPI_Irecv(data, count, MPI_BYTE, peer, tag, state_->handle, &requests_.back()));
}

void MessageSet::require_success(int code) {
  if (code == MPI_SUCCESS)
    return;
  for (std::size_t i = 0; code == MPI_ERR_IN_STATUS && i < statuses_.size(); ++i) {
    const int error = statuses_[i].MPI_ERROR;
    if (error == MPI_SUCCESS || error == MPI_ERR_PENDING)
      continue;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(error, text.data(), &length);
    requests_[i] = MPI_REQUEST_NULL;
    throw Error(ExitCode::communication,
                {.what = messages_[i].collective > 0
                             ? "a collective of the MPI library failed"
                             : fmt::format("a message {} {} failed", messages_[i].incoming ? "from" : "to",
                                           describe(messages_[i].peer)),
                 .where = fmt::format("communicator {}, rank {} of {}", state_->name, state_->rank, state_->size),
                 .got = std::string(text.data(), static_cast<std::size_t>(length)),
                 .wanted = messages_[i].collective > 0 ? std::string("the same collective on all ranks")
                                                       : fmt::format("{} bytes", messages_[i].bytes),
                 .todo = "look for the first rank that failed: the others only see that it is gone"});
  }
  impl::mpi_failed(code, "MPI_Testall", std::source_location::current());
}

void MessageSet::enqueue_messages(const std::string& what) {
  if (!next_group_.empty())
    link_->exchange(*stream_, next_group_, what);
  next_group_.clear();
}

bool MessageSet::test() {
  enqueue_messages(state_->name);
  if (requests_.empty())
    return true;
  if (!landed_) {
    statuses_.resize(requests_.size());
    int done = 0;
    require_success(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data()));
    if (done == 0)
      return false;
    landed_ = true;
    check_lengths();
    read_stamps();
  }
  if (arrives_at_ > 0 && state_->context->clock.now() < arrives_at_)
    return false;
  requests_.clear();
  messages_.clear();
  slices_.clear();
  landed_ = false;
  return true;
}

void MessageSet::check_lengths() const {
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    int count = messages_[i].bytes;
    if (messages_[i].incoming && messages_[i].collective == 0)
      ESPALIER_MPI(MPI_Get_count(&statuses_[i], MPI_BYTE, &count));
    if (count != messages_[i].bytes)
      throw Error(
          ExitCode::communication,
          {.what = fmt::format("a message from {} has another length than expected", describe(messages_[i].peer)),
           .where = fmt::format("communicator {}, rank {} of {}", state_->name, state_->rank, state_->size),
           .got = fmt::format("{} bytes", count),
           .wanted = fmt::format("{} bytes", messages_[i].bytes),
           .todo = "were the ranks started with the same config and binary?"});
  }
}

void MessageSet::read_stamps() {
  arrives_at_ = 0;
  if (!incoming_stamps_.empty() || !gathered_stamps_.empty())
    sent_at_ = 0;
  for (const Stamp& stamp : incoming_stamps_) {
    arrives_at_ = std::max(arrives_at_, stamp.arrives_at);
    sent_at_ = std::max(sent_at_, stamp.sent_at);
  }
  for (const double stamp : gathered_stamps_)
    sent_at_ = std::max(sent_at_, stamp);
  incoming_stamps_.clear();
  outgoing_stamps_.clear();
  gathered_stamps_.clear();
}

void MessageSet::wait(const std::string& what, const std::function<void()>& meanwhile) {
  enqueue_messages(what);
  if (test())
    return;
  Waiter waiter(state_->context->wait);
  WaitNote note;
  while (!test()) {
    note.update(*this, waiter.seconds(), [&] { return what; });
    if (meanwhile)
      meanwhile();
    if (state_->context->device_links != nullptr)
      state_->context->device_links->require_alive();
    if (!waiter.pause())
      give_up(what, waiter.seconds());  // observers see no end of the wait: the progress keeps what was waited for
  }
  if (note.noted())
    state_->context->observers.wait_ends();
}

std::span<int> MessageSet::silent_peers(std::span<int> world_ranks) const {
  std::size_t count = 0;
  for (const bool incoming : {true, false}) {
    for (std::size_t i = 0; i < requests_.size() && count < world_ranks.size(); ++i) {
      if (messages_[i].collective > 0)
        continue;
      int done = 0;
      const int peer = state_->world_ranks[static_cast<std::size_t>(messages_[i].peer)];
      const auto known = world_ranks.first(count);
      if (messages_[i].incoming == incoming && std::find(known.begin(), known.end(), peer) == known.end() &&
          MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
        world_ranks[count++] = peer;
    }
    if (count > 0)
      break;  // who does not take our message is of interest only where nobody owes us one
  }
  return world_ranks.first(count);
}

void MessageSet::note_wait(const std::string& what) const {
  std::array<int, RankProgress::max_peers> peers{};
  state_->context->observers.wait_begins(what, state_->name, state_->traffic.messages, silent_peers(peers));
  if (const std::uint64_t collective = pending_collective(); collective > 0)
    state_->context->observers.collective_waits(state_->id, collective);
}

void MessageSet::refresh_wait() const {
  std::array<int, RankProgress::max_peers> peers{};
  state_->context->observers.wait_goes_on(silent_peers(peers));
  if (pending_collective() > 0)
    impl::answer_missing_ranks(*state_);
}

void MessageSet::note_missing(std::span<const int> ranks) const {
  std::vector<int> world_ranks;
  for (const int rank : ranks)
    world_ranks.push_back(state_->world_ranks[static_cast<std::size_t>(rank)]);
  state_->context->observers.wait_goes_on(world_ranks);
}

void MessageSet::give_up(const std::string& what, double seconds) const {
  std::set<std::string> silent;
  std::set<std::string> deaf;
  if (const std::uint64_t collective = pending_collective(); collective > 0) {
    const std::vector<int> missing = impl::find_missing_ranks(*state_, collective);
    for (const int rank : missing)
      silent.insert(describe(rank));
    note_missing(missing);
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (messages_[i].collective == 0 && MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
        done == 0)
      (messages_[i].incoming ? silent : deaf).insert(describe(messages_[i].peer));
  }
  std::string got;
  if (!silent.empty())
    got = fmt::format("nothing from {}", fmt::join(silent, ", "));
  if (!deaf.empty())
    got += fmt::format("{}not taken by {}", got.empty() ? "" : "; ", fmt::join(deaf, ", "));
  if (got.empty())
    got = "all ranks have begun it, but it does not end";
  throw Error(ExitCode::communication,
              {.what = fmt::format("waited {:.1f} s for {} without success", seconds, what),
               .where = fmt::format(
                   "communicator {}, rank {} of {} (world rank {}), after {} messages sent", state_->name, state_->rank,
                   state_->size, state_->world_ranks[static_cast<std::size_t>(state_->rank)], state_->traffic.messages),
               .got = got,
               .wanted = fmt::format("an answer within {:g} s", state_->context->wait.deadline_seconds),
               .todo = "look at what the named ranks do; if they are only slow, raise run.communication_timeout"});
}

std::string MessageSet::describe(int peer) const {
  const int world_rank = state_->world_ranks[static_cast<std::size_t>(peer)];
  return world_rank == peer ? fmt::format("rank {}", peer) : fmt::format("rank {} (world rank {})", peer, world_rank);
}

}  // namespace espalier
