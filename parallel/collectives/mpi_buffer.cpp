// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/mpi_buffer.hpp"

namespace espalier {

MessageAccess message_access(const Communicator& communicator) {
  return communicator.device_link() != nullptr ? MessageAccess::enqueued : mpi_access(communicator);
}

MessageAccess mpi_access(const Communicator& communicator) {
  const Transport transport = communicator.context().transport;
  const bool direct = transport == Transport::host_memory || transport == Transport::mpi_gpu_aware;
  return direct ? MessageAccess::direct : MessageAccess::staged;
}

void fence_before_messages(const Communicator& communicator, const ExecSpace& exec, const char* reason) {
  if (message_access(communicator) != MessageAccess::enqueued)
    compat::fence(exec, reason);
}

}  // namespace espalier
