// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/device_link.hpp"
#include "parallel/collectives/mpi_check.hpp"

namespace espalier::test {

/// A device link as far as a host can be one, to test without a GPU what goes over links: its messages have no tags,
/// are matched in the order in which they are queued, and are over when exchange() returns. It is stricter than a
/// stream of a device in that a receive keeps the host.
class HostLink : public DeviceLink {
 public:
  HostLink(const Communicator& communicator, const std::vector<int>& members, std::string name)
      : members_(members), name_(std::move(name)), wait_(communicator.context().wait) {
    MPI_Group all;
    MPI_Group ours;
    ESPALIER_MPI(MPI_Comm_group(communicator.handle(), &all));
    ESPALIER_MPI(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &ours));
    ESPALIER_MPI(MPI_Comm_create_group(communicator.handle(), ours, group_tag, &handle_));
    ESPALIER_MPI(MPI_Group_free(&ours));
    ESPALIER_MPI(MPI_Group_free(&all));
  }
  ~HostLink() override {
    int finalized = 0;
    if (std::uncaught_exceptions() == 0 && MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) {
      finish_sends(0);
      MPI_Comm_free(&handle_);
    }
  }

  void exchange(const ExecSpace&, std::span<const DeviceMessage> messages, const std::string& what) override {
    std::vector<MPI_Request> receives;
    for (const DeviceMessage& message : messages) {
      const int peer = place_of(message.peer);
      const int count = static_cast<int>(message.bytes);
      if (message.incoming) {
        ESPALIER_MPI(MPI_Irecv(message.data, count, MPI_BYTE, peer, one_tag, handle_, &receives.emplace_back()));
      } else {
        Sent& sent = sent_.emplace_back();
        sent.data.resize(message.bytes);
        std::memcpy(sent.data.data(), message.data, message.bytes);
        ESPALIER_MPI(MPI_Isend(sent.data.data(), count, MPI_BYTE, peer, one_tag, handle_, &sent.request));
      }
    }
    Waiter waiter(wait_);
    for (int done = 0; done == 0;) {
      ESPALIER_MPI(MPI_Testall(static_cast<int>(receives.size()), receives.data(), &done, MPI_STATUSES_IGNORE));
      if (done == 0 && !waiter.pause())
        throw Error(ExitCode::communication, {.what = "waited in vain for " + what, .where = name_});
    }
    finish_sends(max_sends);
  }

 private:
  static constexpr int group_tag = 1;
  static constexpr int one_tag = 1;
  static constexpr std::size_t max_sends = 256;
  struct Sent {
    std::vector<unsigned char> data;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  int place_of(int rank) const {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i] == rank)
        return static_cast<int>(i);
    ESPALIER_ASSERT(false, "no member of this link");
  }
  void finish_sends(std::size_t most) {
    for (; sent_.size() > most; sent_.pop_front())
      MPI_Wait(&sent_.front().request, MPI_STATUS_IGNORE);
  }

  std::vector<int> members_;
  std::string name_;
  WaitSettings wait_;
  MPI_Comm handle_ = MPI_COMM_NULL;
  std::deque<Sent> sent_;
};

class HostLinks : public DeviceLinkFactory {
 public:
  std::unique_ptr<DeviceLink> connect(const Communicator& communicator, const std::vector<int>& members,
                                      const std::string& name, const LinkUse&) override {
    return std::make_unique<HostLink>(communicator, members, name);
  }
};

/// From here on tensors go over such links, between all ranks and wherever a mesh opens some.
inline void use_host_links(const Communicator& world) {
  world.state()->context->device_links = std::make_shared<HostLinks>();
  world.open_device_link();
}

}  // namespace espalier::test
