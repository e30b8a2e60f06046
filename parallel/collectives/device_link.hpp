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

/// A message between device memories: what to send, or where to receive.
struct DeviceMessage {
  void* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;  ///< rank in the communicator
  bool incoming = false;
};

/// What a link will be used for: it takes no more memory, and no more of the GPU, than that needs.
struct LinkUse {
  int only_sender = -1;  ///< rank in the communicator: the one member that sends; -1: all do
  int max_blocks = 0;    ///< of threads that carry a group of messages; 0: as many as NCCL likes
};

/// Sends device memory between some ranks of a communicator without MPI. Messages have no tags: between two ranks they
/// match in the order in which both enqueue them. One link is used from one stream at a time.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Enqueues the messages on `stream` as one group, in which none waits for another, and returns at once. What is
  /// enqueued on `stream` next finds them done. @throws Error (ExitCode::communication) when the link has failed.
  virtual void exchange(const ExecSpace& stream, std::span<const DeviceMessage> messages, const std::string& what) = 0;
};

/// Makes links. One a job, in its CommunicationContext; none where MPI carries everything.
class DeviceLinkFactory {
 public:
  virtual ~DeviceLinkFactory() = default;

  /// Between `members`, ranks of the communicator, ascending, ours among them. Collective over them.
  virtual std::unique_ptr<DeviceLink> connect(const Communicator& communicator, const std::vector<int>& members,
                                              const std::string& name, const LinkUse& use) = 0;

  /// Device memory that this rank's links have taken, by the free memory before and after. It is in no ledger, and an
  /// estimate, as others may use the device, too.
  virtual std::size_t device_bytes() const { return 0; }

  /// Called while the host waits for something else.
  /// @throws Error (ExitCode::communication) when a link of this rank has failed: which, and between which ranks
  virtual void require_alive() const {}

  /// This rank has failed: its links are aborted, with what they have on streams, whatever other ranks do.
  virtual void abort(const Error& /*reason*/) {}
};

/// nccl_link.cpp; device_link_none.cpp where NCCL is not built in: false, nullptr.
extern const bool has_nccl;

/// Version of the headers it was built with, "2.28.9"; empty without NCCL.
std::string nccl_version();
std::shared_ptr<DeviceLinkFactory> make_nccl_factory();

}  // namespace espalier
