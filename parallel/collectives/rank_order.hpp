// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/collectives/byte_range.hpp"
#include "parallel/collectives/mpi_buffer.hpp"

namespace espalier {

enum class ReduceOp { sum, max, min };

/// own(i) = c_0(i) op c_1(i) op ... op c_{size-1}(i), in this order, where c_r is the contribution of rank r: ours in
/// `own`, that of another rank in `received`, `stride` elements apart, ordered by rank without us. The bits depend
/// on nothing but the contributions. max and min of anything with a NaN are NaN.
/// 16-bit values are added in fp32 and rounded once. Instantiated for the compute types, int32 and int64.
template <class T>
void combine_in_rank_order(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride,
                           int rank, int size, ReduceOp op);

/// Position in `received` of the contribution of `peer`.
constexpr Index received_slot(int peer, int rank) { return peer < rank ? peer : peer - 1; }

/// Where `bytes` of each of `size` ranks come to lie in `received`, `stride` bytes apart.
std::vector<ByteRange> received_ranges(int rank, int size, std::size_t bytes, std::size_t stride);

}  // namespace espalier
