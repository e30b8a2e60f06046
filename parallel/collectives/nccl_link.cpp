// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <future>
#include <thread>

#include "core/cuda_check.hpp"
#include "core/kokkos_compat.hpp"
#include "parallel/collectives/device_link.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/nccl_watchdog.hpp"
#include "parallel/device/device.hpp"

namespace espalier {
namespace {

/// The name under which the members find each other, made by the first of them and sent by MPI.
ncclUniqueId agree_on_id(const Communicator& communicator, const std::vector<int>& members, const std::string& name) {
  ncclUniqueId id{};
  MessageSet messages(communicator);
  if (communicator.rank() == members.front()) {
    require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (std::size_t i = 1; i < members.size(); ++i)
      messages.send(&id, sizeof id, members[i], tags::link_id);
  } else {
    messages.receive(&id, sizeof id, members.front(), tags::link_id);
  }
  messages.wait("the NCCL identifier of " + name);
  return id;
}

/// ncclCommInitRank waits for all members and cannot be aborted: a thread of its own does, and the deadline holds.
ncclComm_t start_communicator(const Communicator& communicator, const ncclUniqueId& id, int size, int rank,
                              const std::string& name, int max_blocks) {
  int device = 0;
  ESPALIER_CUDA(cudaGetDevice(&device));
  std::packaged_task<ncclComm_t()> start([=] {
    ESPALIER_CUDA(cudaSetDevice(device));
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (max_blocks > 0)
      config.maxCTAs = max_blocks;
    require_nccl(ncclCommInitRankConfig(&comm, size, id, rank, &config), "ncclCommInitRankConfig");
    return comm;
  });
  std::future<ncclComm_t> started = start.get_future();
  std::thread(std::move(start)).detach();
  Waiter waiter(communicator.context().wait);
  while (started.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
    if (!waiter.pause())
      throw Error(
          ExitCode::communication,
          {.what = fmt::format("waited {:.1f} s for NCCL to connect {} without success", waiter.seconds(), name),
           .where = fmt::format("member {} of {}", rank, size),
           .got = "not all ranks answer",
           .wanted = fmt::format("a connection within {:g} s", communicator.context().wait.deadline_seconds),
           .todo = "NCCL_DEBUG=INFO says which network it tries; NCCL_SOCKET_IFNAME names the right one"});
  return started.get();
}

std::string peers_text(const Communicator& communicator, const std::vector<int>& members) {
  std::vector<std::string> peers;
  for (const int member : members)
    if (member != communicator.rank())
      peers.push_back(fmt::format("rank {}", communicator.world_rank(member)));
  return fmt::format("{}", fmt::join(peers, ", "));
}

class NcclLink : public DeviceLink {
 public:
  NcclLink(const Communicator& communicator, std::vector<int> members, const std::string& name, const LinkUse& use,
           std::shared_ptr<NcclWatchdog> watchdog)
      : context_(communicator.state()->context.get()), members_(std::move(members)), watchdog_(std::move(watchdog)) {
    const ncclUniqueId id = agree_on_id(communicator, members_, name);
    comm_ = start_communicator(communicator, id, static_cast<int>(members_.size()), member_index(communicator.rank()),
                               name, use.max_blocks);
    for (const int member : members_)
      world_ranks_.push_back(communicator.world_rank(member));
    watchdog_->add(comm_, name, peers_text(communicator, members_), context_->rank_progress);
    check(communicator, name, use.only_sender);
  }

  ~NcclLink() override {
    // Destroying waits for the others; while an exception unwinds this rank they may be elsewhere.
    if (std::uncaught_exceptions() > 0)
      watchdog_->abort(Error(ExitCode::communication, {.what = "this rank has ended with an error"}));
    if (watchdog_->remove(comm_))
      static_cast<void>(ncclCommDestroy(comm_));
  }

  void exchange(const ExecSpace& stream, std::span<const DeviceMessage> messages, const std::string& what) override {
    watchdog_->announce(comm_, what, peers_of(messages), context_->wait.deadline_seconds, stream);
    const ncclResult_t result = enqueue_group(stream.cuda_stream(), messages);
    watchdog_->returned();
    watchdog_->require_alive();  // knows better why a group was aborted
    require_nccl(result, "a group of ncclSend and ncclRecv", comm_);
    watchdog_->enqueued(comm_, stream);
  }

 private:
  int member_index(int rank) const {
    const auto found = std::find(members_.begin(), members_.end(), rank);
    ESPALIER_ASSERT(found != members_.end(), fmt::format("rank {} is no member of this link", rank));
    return static_cast<int>(found - members_.begin());
  }

  /// Ranks of the world, each once.
  std::vector<int> peers_of(std::span<const DeviceMessage> messages) const {
    std::vector<int> peers;
    for (const DeviceMessage& message : messages) {
      const int peer = world_ranks_[static_cast<std::size_t>(member_index(message.peer))];
      if (std::find(peers.begin(), peers.end(), peer) == peers.end())
        peers.push_back(peer);
    }
    return peers;
  }

  ncclResult_t enqueue_group(cudaStream_t stream, std::span<const DeviceMessage> messages) const {
    ncclResult_t result = ncclGroupStart();
    for (const DeviceMessage& message : messages)
      if (result == ncclSuccess)
        result = message.incoming
                     ? ncclRecv(message.data, message.bytes, ncclUint8, member_index(message.peer), comm_, stream)
                     : ncclSend(message.data, message.bytes, ncclUint8, member_index(message.peer), comm_, stream);
    const ncclResult_t ended = ncclGroupEnd();  // also behind a failure: it closes the group
    return result != ncclSuccess ? result : ended;
  }

  /// Each member hears from each that will send: what connects lazily is connected, and what does not work is known
  /// before the first step.
  void check(const Communicator& communicator, const std::string& name, int only_sender) {
    const auto sends = [&](int member) { return only_sender < 0 || member == only_sender; };
    const auto size = static_cast<Index>(members_.size());
    const Tensor<std::int32_t, 1> heard(ledger_label(Category::communication, "link_check"), size + 1);
    const ExecSpace stream;
    const auto host = Kokkos::create_mirror_view(heard);
    std::fill_n(host.data(), host.size(), communicator.rank());
    Kokkos::deep_copy(stream, heard, host);
    std::vector<DeviceMessage> messages;
    for (const int member : members_)
      if (member != communicator.rank()) {
        if (sends(communicator.rank()))
          messages.push_back({heard.data() + size, sizeof(std::int32_t), member, false});
        if (sends(member))
          messages.push_back({heard.data() + member_index(member), sizeof(std::int32_t), member, true});
      }
    exchange(stream, messages, "the first words over " + name);
    Kokkos::deep_copy(stream, host, heard);
    compat::fence(stream, "espalier::NcclLink: the words are compared on the host");
    watchdog_->require_alive();
    for (const int member : members_)
      if (sends(member) && host(member_index(member)) != member)
        throw Error(
            ExitCode::communication,
            {.what = "NCCL cannot move data between two GPUs",
             .where = fmt::format("communicator {}, from rank {} to rank {}", name, communicator.world_rank(member),
                                  communicator.world_rank(communicator.rank())),
             .got = fmt::format("{}", host(member_index(member))),
             .wanted = fmt::format("{}", member),
             .todo = "NCCL_P2P_DISABLE=1 shows whether peer access between the GPUs is broken (often by an "
                     "IOMMU); ESPALIER_TRANSPORT=mpi-staged works without NCCL"});
  }

  CommunicationContext* context_;  // outlives every communicator, and so this
  std::vector<int> members_;
  std::vector<int> world_ranks_;  // of the members
  std::shared_ptr<NcclWatchdog> watchdog_;
  ncclComm_t comm_ = nullptr;
};

class NcclFactory : public DeviceLinkFactory {
 public:
  std::unique_ptr<DeviceLink> connect(const Communicator& communicator, const std::vector<int>& members,
                                      const std::string& name, const LinkUse& use) override {
    const std::size_t free_before = device_memory().free_bytes;
    auto link = std::make_unique<NcclLink>(communicator, members, name, use, watchdog_);  // and tried
    device_bytes_ += free_before - std::min(free_before, device_memory().free_bytes);
    return link;
  }
  std::size_t device_bytes() const override { return device_bytes_; }
  void require_alive() const override { watchdog_->require_alive(); }
  void abort(const Error& reason) override { watchdog_->abort(reason); }

 private:
  std::shared_ptr<NcclWatchdog> watchdog_ = std::make_shared<NcclWatchdog>();
  std::size_t device_bytes_ = 0;
};

}  // namespace

const bool has_nccl = true;
std::string nccl_version() { return fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); }
std::shared_ptr<DeviceLinkFactory> make_nccl_factory() { return std::make_shared<NcclFactory>(); }

}  // namespace espalier
