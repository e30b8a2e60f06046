// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/kokkos_compat.hpp"

namespace espalier {

/// Pinned host memory. Pinning a block takes longer than a message, so blocks are kept and reused.
class PinnedPool {
 public:
  using Block = Kokkos::View<unsigned char*, Kokkos::LayoutRight, compat::PinnedHostSpace>;

  /// A block of at least so many bytes, for the caller alone while the pointer lives.
  std::shared_ptr<const Block> take(std::size_t bytes);

 private:
  std::vector<std::shared_ptr<const Block>> blocks_;
};

}  // namespace espalier
