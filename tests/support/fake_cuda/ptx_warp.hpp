// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/ptx_program.hpp"
#include "tests/support/fake_cuda/ptx_shared.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda::ptx {

/// One launch of a kernel.
struct Launch {
  Module* module;
  const Function* function;
  std::string name;
  dim3 grid, block;
  std::size_t shared_bytes;  ///< beside those of the function
  std::vector<char> parameters;
  KernelCounts& counts;
};

/// Does what the launch asks, block after block; in the other order than the last launch of this kernel.
void run(const Launch& launch);

/// What the warps of a block share.
struct Block {
  const Launch& launch;
  SharedMemory shared;
  dim3 index;
  std::uint32_t interval = 0;  ///< between two barriers; counts on from block to block
  std::uint64_t instructions = 0;
  DeviceRange allocation{};  ///< the one that was used last
};

/// 32 threads, of which those that stand at the same instruction do it together. Those that are behind go first, so
/// that they meet again where their ways do.
class Warp {
 public:
  /// `local`: of a call, the stacks of its caller.
  Warp(Block& block, const Function& function, int index, Lanes lanes, std::vector<std::vector<char>>* local = nullptr);

  /// Begins the function again.
  void begin();

  enum class State { at_barrier, done };
  /// Goes on to the next barrier of the block.
  State run();

  Register& operator[](int r) { return registers_[static_cast<std::size_t>(r)]; }
  Lanes& predicate(int r) { return predicates_[static_cast<std::size_t>(r)]; }

  enum class Use { read, write, update };
  /// Where the bytes are at which a lane's access goes; null, with a misuse told, where it must not.
  char* reach(const Instruction& instruction, int lane, Space space, std::uint64_t address, std::size_t bytes, Use use,
              const void* value = nullptr);

  /// Counts what an instruction has reached of device memory.
  void end_request(std::size_t bytes_a_lane);

  /// Told once of an instruction.
  void complain(const Instruction& instruction, int lane, const std::string& problem);

  /// Accesses of these lanes to shared memory before and after are ordered.
  void order(Lanes lanes);

  struct Copy {  ///< of cp.async, not done before it is waited for
    const Instruction* instruction;
    int lane;
    std::uint64_t to, from;
    std::size_t bytes, copied;
  };
  std::vector<Copy> copies;
  Lanes carry = 0;

 private:
  struct Group {
    int at;  // an instruction
    Lanes lanes;
  };

  const Instruction& instruction_at(int at) const { return function_.code[static_cast<std::size_t>(at)]; }
  Lanes guarded(const Instruction& instruction, Lanes lanes);
  bool is_ready(const Group& group);
  void merge_groups();
  void advance(Group group, int stop);
  void call(const Instruction& instruction, Lanes lanes);
  char* reach_shared(const Instruction& instruction, int lane, std::uint64_t offset, std::size_t bytes, Use use,
                     const void* value);
  char* reach_global(const Instruction& instruction, int lane, std::uint64_t address, std::size_t bytes, bool writes);
  std::uint64_t special(Special which, int lane) const;

  Block& block_;
  const Function& function_;
  int index_;
  Lanes lanes_, alive_ = 0;
  std::vector<Register> registers_;
  std::vector<Lanes> predicates_;
  std::vector<Group> groups_;
  bool is_at_barrier_ = false;
  std::array<std::uint32_t, warp_size> steps_{};  // count the barriers of the warp
  std::vector<std::uint64_t> sectors_;            // of this request, one a lane
  std::vector<std::vector<char>> own_local_;
  std::vector<std::vector<char>>* local_;  // a stack for each lane
  std::size_t frame_ = 0;                  // of this call, in it
};

// ---- For what executes instructions ----

template <class T>
T get(const Register& r, int lane) {
  T value;
  std::memcpy(static_cast<void*>(&value), &r.of[static_cast<std::size_t>(lane)], sizeof value);
  return value;
}
template <class T>
void put(Register& r, int lane, T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  r.of[static_cast<std::size_t>(lane)] = bits;
}

/// f(lane)
template <class F>
void for_lanes(Lanes lanes, const F& f) {
  if (lanes == all_lanes) {
    for (int lane = 0; lane < warp_size; ++lane)
      f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1)
      f(__builtin_ctz(lanes));
  }
}

}  // namespace fake_cuda::ptx
