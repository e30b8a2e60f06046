// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/fake_cuda/clocks.hpp"

/// Races in device memory, and in pinned memory: two pieces of work access the same bytes, one of them may write them,
/// and nothing orders the two, in whatever order they happened to be done here. Copies, memsets, matmuls and messages
/// access the ranges that they are given. A kernel accesses the first byte of each array that it is handed.
///   ESPALIER_FAKE_CUDA_RACES=0           does not look
///   ESPALIER_FAKE_CUDA_IGNORE_WAITS=1    takes waits of streams for streams as if they were not there
namespace fake_cuda {

bool ignores_waits();

/// While this lives, accesses are those of the actor.
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

/// A kernel is handed this address. It is a misuse if memory was freed there.
void note_kernel(std::uint64_t address, const std::string& kernel);

}  // namespace fake_cuda
