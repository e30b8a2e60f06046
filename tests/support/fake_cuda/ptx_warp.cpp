// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Which threads of a warp do which instruction next.
#include "tests/support/fake_cuda/ptx_warp.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/shadow.hpp"

namespace fake_cuda::ptx {
namespace {

constexpr std::uint64_t most_instructions = std::uint64_t{1} << 32;  // of warps, in a block

}  // namespace

Warp::Warp(Block& block, const Function& function, int index, Lanes lanes, std::vector<std::vector<char>>* local)
    : block_(block),
      function_(function),
      index_(index),
      lanes_(lanes),
      registers_(static_cast<std::size_t>(function.num_registers)),
      predicates_(static_cast<std::size_t>(function.num_registers)),
      own_local_(local == nullptr ? warp_size : 0, std::vector<char>(function.local_bytes)),
      local_(local == nullptr ? &own_local_ : local) {
  for (const auto& [r, value] : function.constants) {
    (*this)[r].of.fill(value);
    predicate(r) = value != 0 ? all_lanes : 0;
  }
}

void Warp::begin() {
  alive_ = lanes_;
  groups_ = {{0, lanes_}};
  is_at_barrier_ = false;
  copies.clear();
  for (const auto& [r, which] : function_.specials)
    for (int lane = 0; lane < warp_size; ++lane)
      (*this)[r].of[static_cast<std::size_t>(lane)] = special(which, lane);
  for (const auto& [r, offset] : function_.local_addresses)
    (*this)[r].of.fill(frame_ + offset);
}

std::uint64_t Warp::special(Special which, int lane) const {
  const dim3 block = block_.launch.block, grid = block_.launch.grid;
  const auto thread = static_cast<unsigned>(index_ * warp_size + lane);
  switch (which) {
    case Special::tid_x: return thread % block.x;
    case Special::tid_y: return thread / block.x % block.y;
    case Special::tid_z: return thread / block.x / block.y;
    case Special::ntid_x: return block.x;
    case Special::ntid_y: return block.y;
    case Special::ntid_z: return block.z;
    case Special::ctaid_x: return block_.index.x;
    case Special::ctaid_y: return block_.index.y;
    case Special::ctaid_z: return block_.index.z;
    case Special::nctaid_x: return grid.x;
    case Special::nctaid_y: return grid.y;
    case Special::nctaid_z: return grid.z;
    case Special::laneid: return static_cast<unsigned>(lane);
    case Special::warpid: return static_cast<unsigned>(index_);
    case Special::lanemask_lt: return (1U << lane) - 1;
    case Special::clock: return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return 0;
}

Lanes Warp::guarded(const Instruction& instruction, Lanes lanes) {
  if (instruction.guard < 0)
    return lanes;
  const Lanes predicate = this->predicate(instruction.guard);
  return lanes & (instruction.guard_is_negated ? ~predicate : predicate);
}

// All are there that must do the next instruction together.
bool Warp::is_ready(const Group& group) {
  const Instruction& instruction = instruction_at(group.at);
  if (instruction.flow == Flow::block_barrier)
    return group.lanes == alive_;
  const Lanes lanes = guarded(instruction, group.lanes);
  if (instruction.members < 0 || lanes == 0)
    return true;
  Lanes members = 0;
  for_lanes(lanes, [&](int lane) { members |= get<Lanes>((*this)[instruction.members], lane); });
  return (members & alive_ & ~lanes) == 0;
}

void Warp::merge_groups() {
  std::sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) { return a.at < b.at; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < groups_.size(); ++i)
    if (groups_[i].at == groups_[last].at)
      groups_[last].lanes |= groups_[i].lanes;
    else
      groups_[++last] = groups_[i];
  groups_.resize(std::min(groups_.size(), last + 1));
}

Warp::State Warp::run() {
  if (is_at_barrier_)
    ++groups_.front().at;
  is_at_barrier_ = false;
  while (!groups_.empty()) {
    merge_groups();
    const auto next =
        std::find_if(groups_.begin(), groups_.end(), [this](const Group& group) { return is_ready(group); });
    if (next == groups_.end()) {
      const Group& group = groups_.front();
      complain(instruction_at(group.at), __builtin_ctz(group.lanes),
               "waits for threads of its warp that stand elsewhere or are no part of it");
      groups_.clear();
      break;
    }
    if (instruction_at(next->at).flow == Flow::block_barrier) {
      is_at_barrier_ = true;
      return State::at_barrier;
    }
    const Group group = *next;
    groups_.erase(next);
    advance(group, groups_.empty() ? std::numeric_limits<int>::max() : groups_.front().at);
  }
  if (!copies.empty())
    complain(*copies.front().instruction, copies.front().lane, "copies to shared memory, and does not wait for it");
  copies.clear();
  return State::done;
}

// Until it is not the first of the groups any more, or must wait.
void Warp::advance(Group group, int stop) {
  do {
    const Instruction& instruction = instruction_at(group.at);
    ++block_.launch.counts.instructions;
    if (++block_.instructions > most_instructions) {
      complain(instruction, __builtin_ctz(group.lanes), "is where its block, after so many instructions, does not end");
      groups_.clear();
      alive_ = 0;
      return;
    }
    const Lanes lanes = guarded(instruction, group.lanes);
    switch (instruction.flow) {
      case Flow::next:
        if (instruction.members >= 0 && !is_ready(group)) {
          groups_.push_back(group);
          return;
        }
        if (instruction.execute == nullptr)
          complain(instruction, __builtin_ctz(group.lanes), "is no instruction that the stand-in knows");
        else if (lanes != 0)
          instruction.execute(*this, instruction, lanes);
        ++group.at;
        break;
      case Flow::call:
        call(instruction, lanes);
        ++group.at;
        break;
      case Flow::branch:
        if (lanes != 0 && lanes != group.lanes) {
          groups_.push_back({group.at + 1, group.lanes & ~lanes});
          groups_.push_back({instruction.target, lanes});
          return;
        }
        group.at = lanes == 0 ? group.at + 1 : instruction.target;
        break;
      case Flow::end:
        alive_ &= ~lanes;
        group.lanes &= ~lanes;
        if (group.lanes == 0)
          return;
        ++group.at;
        break;
      case Flow::block_barrier:
        if (instruction.guard >= 0)
          complain(instruction, __builtin_ctz(group.lanes), "has a guard, which the stand-in does not know here");
        groups_.push_back(group);
        return;
    }
  } while (group.at < stop);
  groups_.push_back(group);
}

// The function has registers of its own, and a frame on the stack of each lane.
void Warp::call(const Instruction& instruction, Lanes lanes) {
  const Function* const callee = block_.launch.module->function(instruction.callee);
  if (callee == nullptr || lanes == 0) {
    if (lanes != 0)
      complain(instruction, __builtin_ctz(lanes), "calls a function that the stand-in does not know");
    return;
  }
  Warp inner(block_, *callee, index_, lanes, local_);
  inner.frame_ = frame_ + (function_.local_bytes + 15) / 16 * 16;
  inner.steps_ = steps_;
  if (callee->shared_bytes > 0)
    complain(instruction, __builtin_ctz(lanes), "calls a function with shared memory: not known to the stand-in");
  const auto move = [&](int lane, std::size_t to, std::size_t from, std::size_t bytes) {
    char* const stack = (*local_)[static_cast<std::size_t>(lane)].data();
    std::memcpy(stack + to, stack + from, bytes);
  };
  for_lanes(lanes, [&](int lane) {
    (*local_)[static_cast<std::size_t>(lane)].resize(inner.frame_ + callee->local_bytes);
    for (std::size_t i = 0; i < callee->parameters.size() && i < instruction.arguments.size(); ++i)
      move(lane, inner.frame_ + callee->parameters[i].offset, frame_ + instruction.arguments[i],
           callee->parameters[i].bytes);
  });
  inner.begin();
  if (inner.run() == State::at_barrier)
    complain(instruction, __builtin_ctz(lanes), "calls a function that waits for the block: not known to the stand-in");
  steps_ = inner.steps_;
  for_lanes(lanes, [&](int lane) {
    for (std::size_t i = 0; i < callee->results.size() && i < instruction.results.size(); ++i)
      move(lane, frame_ + instruction.results[i], inner.frame_ + callee->results[i].offset, callee->results[i].bytes);
  });
}

// ---- Memory ----

void Warp::complain(const Instruction& instruction, int lane, const std::string& problem) {
  const auto text = [](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  static auto& told = *new std::set<const Instruction*>;
  if (!told.insert(&instruction).second)
    return;
  misuse(block_.launch.name + ", thread " +
         text(special(Special::tid_x, lane), special(Special::tid_y, lane), special(Special::tid_z, lane)) +
         " of block " + text(block_.index.x, block_.index.y, block_.index.z) + ": \"" + std::string(instruction.text) +
         "\" " + problem);
}

char* Warp::reach(const Instruction& instruction, int lane, Space space, std::uint64_t address, std::size_t bytes,
                  Use use, const void* value) {
  if (space == Space::generic) {
    if (address >= local_window) {
      space = Space::local;
      address -= local_window;
    } else if (address >= shared_window) {
      space = Space::shared;
      address -= shared_window;
    } else {
      space = Space::global;
    }
  }
  if ((address & (bytes - 1)) != 0) {
    complain(instruction, lane, "uses an address that is no multiple of its " + std::to_string(bytes) + " bytes");
    return nullptr;
  }
  const auto within = [&](const std::vector<char>& memory, const char* name) {
    const bool fits = bytes <= memory.size() && address <= memory.size() - bytes;
    if (!fits)
      complain(instruction, lane, "leaves its " + std::string(name) + " at " + std::to_string(address));
    return fits ? const_cast<char*>(memory.data()) + address : nullptr;
  };
  switch (space) {
    case Space::shared:  // its addresses have 32 bits, also in sums
      return reach_shared(instruction, lane, address & 0xffffffffU, bytes, use, value);
    case Space::local: return within((*local_)[static_cast<std::size_t>(lane)], "local memory");
    case Space::parameter: return within(block_.launch.parameters, "parameters");
    default: return reach_global(instruction, lane, address, bytes, use != Use::read);
  }
}

char* Warp::reach_shared(const Instruction& instruction, int lane, std::uint64_t offset, std::size_t bytes, Use use,
                         const void* value) {
  SharedMemory& shared = block_.shared;
  if (offset + bytes > shared.size()) {
    complain(instruction, lane, "leaves shared memory at " + std::to_string(offset));
    return nullptr;
  }
  char* const data = shared.data() + offset;
  const Moment now{index_, lane, block_.interval, steps_[static_cast<std::size_t>(lane)]};
  const char* problem = nullptr;
  if (use == Use::read)
    problem = shared.read(offset, bytes, now);
  else
    problem = shared.write(offset, bytes, now,
                           use == Use::write && (value == nullptr || std::memcmp(data, value, bytes) != 0));
  if (problem != nullptr)
    complain(instruction, lane, problem + (" at " + std::to_string(offset)));
  return data;
}

char* Warp::reach_global(const Instruction& instruction, int lane, std::uint64_t address, std::size_t bytes,
                         bool writes) {
  DeviceRange& known = block_.allocation;
  if (address - known.first >= known.bytes)
    known = allocation_at(address);
  if (address - known.first + bytes > known.bytes) {
    complain(instruction, lane,
             known.bytes == 0 ? "uses an address that is not of device memory, or was freed"
                              : "leaves its allocation, " + std::to_string(address - known.first) + " bytes into " +
                                    std::to_string(known.bytes));
    return nullptr;
  }
  constexpr std::uint64_t sector_bytes = 32;
  sectors_.push_back(address / sector_bytes);
  if (known.shadow != nullptr) {
    if (!known.shadow->has_touched())
      note_kernel_in(*known.shadow);
    known.shadow->touch(address - known.first, bytes, writes);
  }
  return known.data + (address - known.first);
}

// Who comes to a barrier later than an access was made has it behind.
void Warp::order(Lanes lanes) {
  const std::uint32_t next = *std::max_element(steps_.begin(), steps_.end()) + 1;
  for_lanes(lanes, [&](int lane) { steps_[static_cast<std::size_t>(lane)] = next; });
}

void Warp::end_request(std::size_t bytes_a_lane) {
  if (sectors_.empty())
    return;
  KernelCounts& counts = block_.launch.counts;
  ++counts.requests;
  counts.bytes += bytes_a_lane * sectors_.size();
  std::sort(sectors_.begin(), sectors_.end());
  counts.sectors += static_cast<std::uint64_t>(std::unique(sectors_.begin(), sectors_.end()) - sectors_.begin());
  sectors_.clear();
}

}  // namespace fake_cuda::ptx
