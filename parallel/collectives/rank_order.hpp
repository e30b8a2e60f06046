// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/collectives/byte_range.hpp"
#include "parallel/collectives/mpi_buffer.hpp"

namespace espalier {

enum class ReduceOp { sum, max, min };

/// F(T) for each type whose values are added up between ranks.
#define ESPALIER_FOR_SUMMED_TYPES(F) ESPALIER_FOR_COMPUTE_TYPES(F) F(std::int32_t) F(std::int64_t)

/// own(i) = c_0(i) op c_1(i) op ... op c_{size-1}(i), in this order, where c_r is the contribution of rank r. Ours is
/// in `own`. The others are in `received`, in rank order, `stride` elements apart. The bits depend on nothing but the
/// contributions. max and min of anything with a NaN are NaN. 16-bit values are added in fp32 and rounded once.
/// For ESPALIER_FOR_SUMMED_TYPES.
template <class T>
void combine_in_rank_order(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride,
                           int rank, int size, ReduceOp op);

/// Position in `received` of the contribution of `peer`.
constexpr Index received_slot(int peer, int rank) { return peer < rank ? peer : peer - 1; }

/// Where `bytes` of each of `size` ranks lie in `received`, `stride` bytes apart.
std::vector<ByteRange> received_ranges(int rank, int size, std::size_t bytes, std::size_t stride);

}  // namespace espalier
