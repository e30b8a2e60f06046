// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/collective_traffic.hpp"

#include <algorithm>

namespace espalier {
namespace {

constexpr Index piece_bytes = Index{32} << 20;

}  // namespace

Index all_reduce_piece(Index element_bytes) { return piece_bytes / element_bytes; }

Index reduce_scatter_piece(Index count, Index element_bytes, int size) {
  return std::min(count, std::max<Index>(1, piece_bytes / element_bytes / size));
}

IndexRange owned_slice(Index piece, int rank, int size) {
  const Index most = (piece + size - 1) / size;
  return {std::min(piece, rank * most), std::min(piece, (rank + 1) * most)};
}

std::uint64_t all_reduce_traffic(Index count, Index element_bytes, int rank, int size) {
  if (size == 1)
    return 0;
  const Index others = size - 1;
  if (is_small_reduce(count, element_bytes))
    return static_cast<std::uint64_t>(others * count * element_bytes);
  const Index piece = all_reduce_piece(element_bytes);
  Index elements = 0;
  for (Index begin = 0; begin < count; begin += piece) {
    const Index n = std::min(piece, count - begin);
    const Index own = owned_slice(n, rank, size).size();
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
  const Index piece = std::min(count, all_reduce_piece(element_bytes));
  const Index each = is_small_reduce(count, element_bytes) ? count : owned_slice(piece, 0, size).size();
  return (size - 1) * each * element_bytes;
}

Index reduce_scatter_scratch(Index count, Index element_bytes, int size) {
  return (size - 1) * reduce_scatter_piece(count, element_bytes, size) * element_bytes;
}

}  // namespace espalier
