// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/clocks.hpp"

/// Races in device memory, and in pinned memory: two pieces of work access the same bytes, one of them may write them,
/// and nothing orders the two, in whatever order they happened to be done here. Copies, memsets, matmuls and messages
/// access the ranges that they are given. A kernel accesses the first byte of each array that it is handed.
namespace fake_cuda {

/// ESPALIER_FAKE_CUDA_IGNORE_WAITS=1: waits of streams for streams are taken as if they were not there.
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

/// How memory is accessed. A kernel that is handed an address may read or write it: nobody knows which.
enum class Access { read, write, kernel };

struct Touch {
  std::shared_ptr<const Actor> actor;
  Access access;
};

/// Which accesses the bytes of one allocation have seen: the last write, and all since.
class Shadow {
 public:
  /// Reports each earlier access that is a race with this one.
  void touch(const Touch& now, std::size_t offset, std::size_t bytes);

 private:
  using History = std::vector<Touch>;

  void split(std::size_t offset);

  std::map<std::size_t, History> pieces_{{0, {}}};  // each up to the next one's offset
};

}  // namespace fake_cuda
