// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "parallel/collectives/collective_traffic.hpp"
#include "parallel/collectives/device_link.hpp"
#include "parallel/collectives/message_hook.hpp"
#include "parallel/collectives/pinned_pool.hpp"
#include "parallel/collectives/transport.hpp"
#include "parallel/collectives/wait.hpp"
#include "parallel/observe/job_clock.hpp"
#include "parallel/observe/rank_progress.hpp"
#include "parallel/observe/timeline.hpp"

namespace espalier {

/// What all communicators of a job share: one object, made by Runtime and handed on by split() and duplicate().
struct CommunicationContext {
  WaitSettings wait;
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< longer messages go in pieces: MPI counts are int
  int max_direct_ranks = default_max_direct_ranks;       ///< larger groups leave collectives to the MPI library
  std::shared_ptr<MessageHook> message_hook = nullptr;
  JobClock clock;
  ProgressWriter rank_progress;
  Timeline timeline;
  StepObservers observers{&rank_progress, &timeline};         ///< of a copy: those of the original
  Transport transport = Transport::host_memory;               ///< of tensors, where no device link carries them
  std::shared_ptr<DeviceLinkFactory> device_links = nullptr;  ///< of Transport::nccl
  int ranks_per_device = 1;                                   ///< the most of any
  PinnedPool pinned;

  /// Of this rank's device memory, what its device links have taken so far: see DeviceLinkFactory::device_bytes().
  std::size_t link_bytes() const { return device_links == nullptr ? 0 : device_links->device_bytes(); }
};

}  // namespace espalier
