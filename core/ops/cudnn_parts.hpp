// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/ops/attention_shape.hpp"

// What attention through cuDNN needs, computed without cuDNN: letters as in attention.hpp.

namespace espalier {

/// What one call computes of a micro-batch: so many of its sequences, and of their heads.
struct CudnnPart {
  Index sequences, heads;
};

/// How much of the micro-batch one call of backward takes: as many heads as keep the (T, T) matrices that cuDNN may
/// store within 256 MiB, but at least one group of heads that share keys and values.
CudnnPart cudnn_backward_part(Index batch /* B */, Index num_heads /* NH (local) */,
                              Index num_kv_heads /* NKV (local) */, Index sequence_length /* T */);

/// Where cuDNN wants more device memory to work in than this, our own kernels compute.
inline constexpr std::size_t max_cudnn_workspace_bytes = std::size_t{4} << 30;

/// The most device memory that attention of a micro-batch in 16 bits holds on to: what cuDNN 9.19 wants on A100 and
/// H200; it wants none on B200, and none for heads that only our own kernels take, which hold none. Above
/// a head size of 128 the number holds for Hopper, the only one that takes such heads.
std::size_t cudnn_workspace_bound(const AttentionShape& shape);

/// Whether rows of heads are such that tensor cores can take them.
bool is_cudnn_head_size(Index head_size /* HS */);

}  // namespace espalier
