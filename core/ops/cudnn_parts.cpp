// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cudnn_parts.hpp"

#include <algorithm>

namespace espalier {
namespace {

// In a fixed order, cuDNN before 9.25 keeps (B, NH, T, T) numbers on sm_80 and sm_90, which is what tiles are there to
// avoid: so backward takes as much at a time as keeps them within this. Still enough to fill a GPU: 128 heads at
// T = 1024.
constexpr Index most_kept_bytes = Index{256} << 20;

Index largest_divisor(Index number, Index at_most) {
  Index divisor = std::clamp(at_most, Index{1}, number);
  while (number % divisor != 0)
    --divisor;
  return divisor;
}

Index whole_tiles(Index length, Index tile) { return (length + tile - 1) / tile * tile; }

}  // namespace

CudnnPart cudnn_backward_part(Index batch, Index num_heads, Index sequence_length) {
  const Index of_head = 2 * sequence_length * sequence_length;
  const Index heads = most_kept_bytes / of_head;
  return {largest_divisor(batch, heads / num_heads), largest_divisor(num_heads, heads)};
}

bool is_cudnn_head_size(Index head_size) { return head_size > 0 && head_size % 8 == 0; }

std::size_t cudnn_workspace_bound(Index batch, Index num_heads, Index head_size, Index sequence_length) {
  constexpr Index largest_head = 256;
  if (!is_cudnn_head_size(head_size) || head_size > largest_head)
    return 0;
  constexpr std::size_t beside = 512;  // counters of cuDNN's, and the gap that aligns them
  const CudnnPart part = cudnn_backward_part(batch, num_heads, sequence_length);
  const Index of_head = 2 * whole_tiles(sequence_length, 64) * whole_tiles(sequence_length, 128);
  const std::size_t bytes = static_cast<std::size_t>(part.sequences * part.heads * of_head) + beside;
  return bytes > most_cudnn_workspace_bytes ? 0 : bytes;
}

}  // namespace espalier
