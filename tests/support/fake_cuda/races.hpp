// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "tests/support/fake_cuda/clocks.hpp"

/// Races in memory of devices, and in pinned memory between copies: two pieces of work touch the same bytes, one of
/// them writes, and nothing orders them, in whatever order they happened to be done here.
///   ESPALIER_FAKE_CUDA_RACES=0           does not look
///   ESPALIER_FAKE_CUDA_IGNORE_WAITS=1    takes the waits of queues for queues as if they were not there
namespace fake_cuda {

bool looks_for_races();
bool ignores_waits();

/// What is touched while this lives is touched by the actor.
class Acting {
 public:
  explicit Acting(std::shared_ptr<const Actor> actor);
  ~Acting();
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;

 private:
  std::shared_ptr<const Actor> outer_;
};

/// The work that is done now reads or writes these bytes, all of one allocation. Pageable memory is passed over.
void note_read(const void* address, std::size_t bytes);
void note_write(const void* address, std::size_t bytes);

/// A kernel begins to touch this allocation.
class Shadow;
void note_kernel_in(Shadow& shadow);

}  // namespace fake_cuda
