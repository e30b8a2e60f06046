// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/ptx_shared.hpp"

namespace fake_cuda::ptx {

const char* SharedMemory::read(std::size_t offset, std::size_t bytes, const Moment& now) {
  const char* problem = nullptr;
  for (std::size_t i = offset / grain; i * grain < offset + bytes; ++i) {
    auto& [written, read] = cells_[i];
    if (written.interval < first_interval_)
      problem = "reads shared memory that nobody has written";
    else if (is_race(written, now))
      problem = "reads shared memory that another thread writes before the next barrier";
    if (read.interval != now.interval || (read.warp == now.warp && read.step < now.step))
      read = {now.warp, now.lane, now.interval, now.step};
    else if (read.warp != now.warp)
      read.warp = several;
    else if (read.lane != now.lane)
      read.lane = several;
  }
  return problem;
}

const char* SharedMemory::write(std::size_t offset, std::size_t bytes, const Moment& now, bool changes) {
  const char* problem = nullptr;
  for (std::size_t i = offset / grain; i * grain < offset + bytes; ++i) {
    auto& [written, read] = cells_[i];
    if (changes && is_race(written, now))
      problem = "writes shared memory that another thread writes before the next barrier";
    else if (changes && is_race(read, now))
      problem = "writes shared memory that another thread reads before the next barrier";
    written = {now.warp, now.lane, now.interval, now.step};
  }
  return problem;
}

}  // namespace fake_cuda::ptx
