// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collective_traffic.hpp"

#include <algorithm>

namespace espalier {

std::uint64_t all_reduce_traffic(Index count, Index element_bytes, int rank, int size) {
  if (size == 1)
    return 0;
  const Index others = size - 1;
  if (count * element_bytes <= small_reduce_bytes)
    return static_cast<std::uint64_t>(others * count * element_bytes);
  const Index piece = reduce_piece_bytes / element_bytes;
  Index elements = 0;
  for (Index begin = 0; begin < count; begin += piece) {
    const Index n = std::min(piece, count - begin);
    const Index slice = (n + size - 1) / size;
    const Index own = std::min(n, (rank + 1) * slice) - std::min(n, rank * slice);
    elements += n - own + others * own;
  }
  return static_cast<std::uint64_t>(elements * element_bytes);
}

std::uint64_t all_gather_traffic(Index count, Index element_bytes, int size) {
  return static_cast<std::uint64_t>((size - 1) * count * element_bytes);
}

std::uint64_t reduce_scatter_traffic(Index count, Index element_bytes, int size) {
  return all_gather_traffic(count, element_bytes, size);
}

}  // namespace espalier
