// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cudnn_parts.hpp"

#include <algorithm>

namespace espalier {
namespace {

// In a fixed order, cuDNN before 9.25 keeps (B, NH, T, T) numbers on sm_80 and sm_90, which is what tiles are there to
// avoid: so backward takes as much at a time as keeps them within this. Still enough to fill a GPU: 128 heads at
// T = 1024.
constexpr Index max_kept_bytes = Index{256} << 20;

Index largest_divisor(Index number, Index at_most) {
  Index divisor = std::clamp(at_most, Index{1}, number);
  while (number % divisor != 0)
    --divisor;
  return divisor;
}

Index whole_tiles(Index length, Index tile) { return (length + tile - 1) / tile * tile; }

}  // namespace

CudnnPart cudnn_backward_part(Index batch, Index num_heads, Index num_kv_heads, Index sequence_length) {
  const Index of_head = 2 * sequence_length * sequence_length;
  const Index heads = max_kept_bytes / of_head;
  const Index group = num_heads / num_kv_heads;
  return {largest_divisor(batch, heads / num_heads), group * largest_divisor(num_kv_heads, heads / group)};
}

bool is_cudnn_head_size(Index head_size) { return head_size > 0 && head_size % 8 == 0; }

std::size_t cudnn_workspace_bound(const AttentionShape& shape) {
  constexpr Index largest_head = 256;
  if (!is_cudnn_head_size(shape.head_size) || shape.head_size > largest_head)
    return 0;
  constexpr std::size_t beside = 512;  // counters of cuDNN's, and the gap that aligns them
  const CudnnPart part = cudnn_backward_part(shape.batch, shape.num_heads, shape.num_kv_heads, shape.sequence_length);
  // The (T, T) matrix of a head, and its gradients of K and V before those of a group are summed.
  const Index of_head = 2 * whole_tiles(shape.sequence_length, 64) * whole_tiles(shape.sequence_length, 128) +
                        (shape.group() > 1 ? 2 * 2 * shape.sequence_length * shape.head_size : 0);
  const std::size_t bytes = static_cast<std::size_t>(part.sequences * part.heads * of_head) + beside;
  return bytes > max_cudnn_workspace_bytes ? 0 : bytes;
}

}  // namespace espalier
