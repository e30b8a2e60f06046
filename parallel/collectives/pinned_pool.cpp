// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/pinned_pool.hpp"

#include <bit>

#include "core/memory_ledger.hpp"

namespace espalier {

std::shared_ptr<const PinnedPool::Block> PinnedPool::take(std::size_t bytes) {
  std::shared_ptr<const Block> best;
  for (const auto& block : blocks_)
    if (block.use_count() == 1 && block->size() >= bytes && (!best || block->size() < best->size()))
      best = block;
  if (best)
    return best;
  const std::string label = ledger_label(Category::communication, "host_staging");
  // Few sizes, so that blocks fit again; of large ones little is wasted.
  constexpr std::size_t large = std::size_t{1} << 20;
  const std::size_t size = bytes < large ? std::bit_ceil(bytes) : (bytes + large - 1) / large * large;
  return blocks_.emplace_back(
      std::make_shared<const Block>(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), size));
}

}  // namespace espalier
