// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/types.hpp"

namespace espalier {

class Communicator;

/// Of a message between device memories: what leaves, or where what comes is to lie.
struct DeviceMessage {
  void* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;  ///< rank in the communicator
  bool incoming = false;
};

/// What a link is to be used for: it need not hold more memory, and no more of the GPU, than that.
struct LinkUse {
  int only_sender = -1;  ///< rank in the communicator: the one member that sends; -1: all do
  int max_blocks = 0;    ///< of threads that carry a group of messages; 0: as many as NCCL likes
};

/// Moves device memory between some ranks of a communicator without MPI. Messages bear no tags: between two ranks they
/// are matched in the order in which both enqueue them. One link is used from one stream at a time.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Enqueues the messages on `stream`, as one group, in which none waits for another; returns at once. What `stream`
  /// is given from now on finds them done. @throws Error (ExitCode::communication) when the link has failed.
  virtual void exchange(const ExecSpace& stream, std::span<const DeviceMessage> messages, const std::string& what) = 0;
};

/// Makes links. One a job, in its CommunicationContext; none where MPI moves everything.
class DeviceLinkFactory {
 public:
  virtual ~DeviceLinkFactory() = default;

  /// Between `members`, ranks of the communicator, ascending, ours among them. Collective over them.
  virtual std::unique_ptr<DeviceLink> connect(const Communicator& communicator, const std::vector<int>& members,
                                              const std::string& name, const LinkUse& use) = 0;

  /// Device memory that was free before this rank's links were made and is not any more: in no ledger, and an estimate,
  /// as others may use the device, too.
  virtual std::size_t device_bytes() const { return 0; }

  /// @throws Error (ExitCode::communication) when a link of this rank has failed since: what, and of whom. To be asked
  /// while the host waits for something else.
  virtual void require_alive() const {}

  /// This rank has failed: what its links have on streams is called off, whatever other ranks do.
  virtual void abandon(const Error& /*reason*/) {}
};

/// nccl_link.cpp; device_link_none.cpp where NCCL is not built in: false, nullptr.
extern const bool has_nccl;

/// Version of the headers it was built with, "2.28.9"; empty without NCCL.
std::string nccl_version();
std::shared_ptr<DeviceLinkFactory> make_nccl_factory();

}  // namespace espalier
