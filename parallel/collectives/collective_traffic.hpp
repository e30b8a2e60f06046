// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/scalars.hpp"

// What the collectives of parallel/collectives hand to MPI, and what they need to receive it, in bytes: pure functions
// of sizes. They are exact, not estimates; tests compare them with what the communicators count. One rank sends
// nothing.

namespace espalier {

/// Groups of up to so many ranks exchange messages directly; larger ones leave collectives to the MPI library.
inline constexpr int default_most_direct_ranks = 16;

/// Up to here every rank of an all_reduce sends all it has to all others and adds everything itself: one message time
/// instead of two.
inline constexpr Index small_reduce_bytes = 4096;

/// Long arrays are reduced piece by piece, which bounds the memory for what the others send.
inline constexpr Index reduce_piece_bytes = Index{32} << 20;

/// Of an all_reduce of `count` elements over `size` ranks, what `rank` sends. A short array goes to each of the
/// others. Of a piece of n elements of which we own m (n / size rounded up; the last ranks own less, or nothing), we
/// send n - m values to those who add them, and m sums to each of the size - 1 others.
std::uint64_t all_reduce_traffic(Index count, Index element_bytes, int rank, int size);

/// Of an all_gather of `count` elements a rank: to each of the others all we have.
std::uint64_t all_gather_traffic(Index count, Index element_bytes, int size);

/// Of a reduce_scatter that leaves `count` elements on each rank: to each of the others its part.
std::uint64_t reduce_scatter_traffic(Index count, Index element_bytes, int size);

/// Memory in which a rank receives what it adds, of the same all_reduce and reduce_scatter. Their communicator keeps
/// it.
Index all_reduce_scratch(Index count, Index element_bytes, int size);
Index reduce_scatter_scratch(Index count, Index element_bytes, int size);

}  // namespace espalier
