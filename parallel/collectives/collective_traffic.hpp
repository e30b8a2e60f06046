// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/parameter_spec.hpp"

// How the collectives of parallel/collectives cut arrays, what they send, and memory in which they receive: pure
// functions of sizes. They are exact: tests compare them with what the communicators count. One rank sends nothing.

namespace espalier {

/// Groups of up to so many ranks exchange messages directly; larger groups call the collectives of the MPI library.
inline constexpr int default_max_direct_ranks = 16;

/// Whether every rank of an all_reduce sends its whole array to all others and adds everything itself: one message time
/// instead of two.
constexpr bool is_small_reduce(Index count, Index element_bytes) { return count * element_bytes <= 4096; }

/// Long arrays are reduced piece by piece, which bounds the receive buffer. The elements of each piece but the last: of
/// the array of an all_reduce, or of the output of a reduce_scatter, which has `count` elements on each rank.
Index all_reduce_piece(Index element_bytes);
Index reduce_scatter_piece(Index count, Index element_bytes, int size);

/// The part of a piece of an all_reduce that `rank` owns: it adds the others' values of it. The last ranks own less, or
/// nothing.
IndexRange owned_slice(Index piece, int rank, int size);

/// Bytes that `rank` sends in an all_reduce of `count` elements over `size` ranks. A short array goes to each of the
/// others. Long pieces have n elements, of which we own m: we send n - m values to their owners, and m sums to each of
/// the size - 1 others.
std::uint64_t all_reduce_traffic(Index count, Index element_bytes, int rank, int size);

/// Of an all_gather of `count` elements a rank: all of ours to each of the others.
std::uint64_t all_gather_traffic(Index count, Index element_bytes, int size);

/// Of a reduce_scatter with `count` elements of output on each rank: its part to each of the others.
std::uint64_t reduce_scatter_traffic(Index count, Index element_bytes, int size);

/// Receive buffers of the same all_reduce and reduce_scatter. Their communicator keeps them.
Index all_reduce_scratch(Index count, Index element_bytes, int size);
Index reduce_scatter_scratch(Index count, Index element_bytes, int size);

}  // namespace espalier
