// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/block_memory.hpp"

#include <string_view>

#include "models/transformer_block.hpp"

namespace espalier {
namespace {

template <class P, class Chosen>
Index saved_bytes(const BlockShape& shape, const Chosen& chosen) {
  Arena arena;
  TakeArrays take(arena, chosen);
  typename TransformerBlock<P>::Saved().each(take, shape);
  return arena.used_bytes();
}

template <class P>
BlockMemory memory_of(const BlockShape& shape, Recompute mode) {
  using Block = TransformerBlock<P>;
  Arena stream, full, gradients;
  stream.take<Residual<P>>(shape.rows, shape.channels);
  if (shape.sequence_parallel)
    full.take<Compute<P>>(shape.tokens(), shape.channels);
  Block::Gradients::take(gradients, shape);
  const auto bytes = [&](const auto& chosen) { return saved_bytes<P>(shape, chosen); };
  const auto named = [&](std::string_view name) {
    return bytes([=](const SavedArray& array) { return std::string_view(array.name) == name; });
  };
  const auto lost = [=](const SavedArray& array) { return !is_kept(array, mode); };
  return {.kept = bytes([=](const SavedArray& array) { return is_kept(array, mode); }) + stream.used_bytes(),
          .recomputed = bytes(lost),
          .read_later = Block::recomputes_for_input(mode)
                            ? bytes([](const SavedArray& array) { return array.read_by != ReadBy::backward_input; })
                            : 0,
          .gradients = gradients.used_bytes(),
          .stream = stream.used_bytes(),
          .full = full.used_bytes(),
          .scores = named("attention.log_sum_exp"),
          .statistics = named("norm.mean") + named("norm.rstd")};
}

}  // namespace

BlockMemory block_memory(const BlockShape& shape, Recompute mode, ScalarType compute) {
  switch (compute) {
    case ScalarType::fp64: return memory_of<Fp64>(shape, mode);
    case ScalarType::bf16: return memory_of<Bf16>(shape, mode);
    case ScalarType::fp16: return memory_of<Fp16>(shape, mode);
    case ScalarType::fp32: break;
  }
  return memory_of<Fp32>(shape, mode);
}

}  // namespace espalier
