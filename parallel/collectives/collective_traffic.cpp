// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/collective_traffic.hpp"

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

Index all_reduce_scratch(Index count, Index element_bytes, int size) {
  const bool is_small = count * element_bytes <= small_reduce_bytes;
  const Index piece = std::min(count, reduce_piece_bytes / element_bytes);
  const Index each = is_small ? count : (piece + size - 1) / size;
  return (size - 1) * each * element_bytes;
}

Index reduce_scatter_scratch(Index count, Index element_bytes, int size) {
  const Index piece = std::max<Index>(1, reduce_piece_bytes / element_bytes / size);
  return (size - 1) * std::min(count, piece) * element_bytes;
}

}  // namespace espalier
