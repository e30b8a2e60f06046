// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The blocks of a launch, one after the other, forwards or backwards: who relies on an order is seen.
#include <algorithm>

#include "tests/support/fake_cuda/ptx_warp.hpp"

namespace fake_cuda::ptx {
namespace {

void run_block(Block& block, std::vector<Warp>& warps, bool is_backwards) {
  block.shared.begin(++block.interval);
  block.instructions = 0;
  for (Warp& warp : warps)
    warp.begin();
  for (bool waits = true; waits; ++block.interval) {
    waits = false;
    for (std::size_t i = 0; i < warps.size(); ++i)
      waits |= warps[is_backwards ? warps.size() - 1 - i : i].run() == Warp::State::at_barrier;
  }
}

}  // namespace

void run(const Launch& launch) {
  const bool is_backwards = ++launch.counts.runs % 2 == 0;
  Block block{launch, SharedMemory(launch.function->shared_bytes + launch.shared_bytes), {}};
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  std::vector<Warp> warps;
  warps.reserve((threads + warp_size - 1) / warp_size);
  for (unsigned first = 0; first < threads; first += warp_size)
    warps.emplace_back(block, *launch.function, static_cast<int>(first / warp_size),
                       threads - first >= warp_size ? all_lanes : (1U << (threads - first)) - 1);
  const auto [columns, rows, layers] = launch.grid;
  const std::uint64_t blocks = std::uint64_t{columns} * rows * layers;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = is_backwards ? blocks - 1 - i : i;
    block.index = dim3(static_cast<unsigned>(at % columns), static_cast<unsigned>(at / columns % rows),
                       static_cast<unsigned>(at / columns / rows));
    run_block(block, warps, is_backwards);
  }
}

}  // namespace fake_cuda::ptx
