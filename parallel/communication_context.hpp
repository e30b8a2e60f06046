// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "parallel/emulated_links.hpp"
#include "parallel/job_clock.hpp"
#include "parallel/planted_fault.hpp"
#include "parallel/position.hpp"
#include "parallel/timeline.hpp"
#include "parallel/wait.hpp"

namespace espalier {

/// What all communicators of a job share: one object, made by Runtime and handed on by split() and duplicate().
struct CommunicationContext {
  WaitSettings wait;
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< longer messages go in pieces: MPI counts are int
  int max_delay_us = 0;                                  ///< tests: each send sleeps up to this long
  std::mt19937_64 delay_random;
  JobClock clock;
  Timeline timeline;
  PositionWriter position;
  EmulatedLinks links;
  LinkQueue link_queue;
  PlantedFault planted_fault = PlantedFault::none;
};

}  // namespace espalier
