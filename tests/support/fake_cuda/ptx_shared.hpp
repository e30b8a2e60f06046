// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fake_cuda::ptx {

/// Who reads or writes shared memory, and since when: barriers of the block and of the warp order accesses.
struct Moment {
  int warp = 0, lane = 0;
  std::uint32_t interval = 0;  ///< counts the barriers of the block; never twice the same in a launch
  std::uint32_t step = 0;      ///< counts those of the warp
};

/// The shared memory of a block, which knows what was written and who did what since the last barrier.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : data_(bytes), cells_((bytes + grain - 1) / grain) {}

  std::size_t size() const { return data_.size(); }
  char* data() { return data_.data(); }

  /// A new block begins: nothing has been written.
  void begin(std::uint32_t interval) { first_interval_ = interval; }

  /// Notes an access; what is wrong with it, or null. Writing what is there already is no race, nor is an atomic
  /// update.
  const char* read(std::size_t offset, std::size_t bytes, const Moment& now);
  const char* write(std::size_t offset, std::size_t bytes, const Moment& now, bool changes);

 private:
  static constexpr std::size_t grain = 2;  // bytes: neighbours of one byte would be taken for one
  static constexpr int several = -1;
  struct Access {
    int warp = 0, lane = 0;  // or several
    std::uint32_t interval = 0, step = 0;
  };
  struct Cell {
    Access written, read;
  };

  // Not ordered with `now`, and of another thread.
  static bool is_race(const Access& before, const Moment& now) {
    return before.interval == now.interval &&
           (before.warp != now.warp || (before.step >= now.step && before.lane != now.lane));
  }

  std::vector<char> data_;
  std::vector<Cell> cells_;
  std::uint32_t first_interval_ = 1;
};

}  // namespace fake_cuda::ptx
