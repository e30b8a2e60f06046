// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The part of Decoder that takes in tokens of sequences that grow.
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "models/decoder.hpp"
#include "models/logit_rows.hpp"
#include "models/token_upload.hpp"

namespace espalier {

// The arrays of a cache in the arena, which may have no memory.
template <class P>
typename Decoder<P>::Cache Decoder<P>::take_cache(Arena& arena, const CacheShape& shape) const {
  const BlockShape of_rows = make_shape(1, shape.rows);
  Cache cache;
  for (Index layer = 0; layer < config_.num_layers; ++layer)
    cache.layers.emplace_back(arena.take<T>(shape.sequences, shape.length, 2 * of_rows.kv_channels));
  cache.rotary = arena.take<State<T>>(shape.length, of_rows.rotary);
  cache.rows = {arena.take<int>(shape.rows), arena.take<int>(shape.rows)};
  return cache;
}

template <class P>
Index Decoder<P>::cache_bytes(const CacheShape& shape) const {
  Arena arena;
  take_cache(arena, shape);
  const ActivationBytes of_rows = measure(make_shape(1, shape.rows), forward_memory());
  return arena.used_bytes() + of_rows.slots + of_rows.workspace;
}

template <class P>
void Decoder<P>::plan_cache(const CacheShape& shape) {
  ESPALIER_ASSERT(is_whole_model(), "wants a stage that is the whole model");
  ESPALIER_ASSERT(!tensor_->sequence_parallel(), "each rank takes in all rows");
  ESPALIER_ASSERT(shape.rows <= max_decoded, "more rows than are taken in at a time");
  ESPALIER_ASSERT(shape.length <= config_.max_sequence_length, "more positions than the model has");
  static_assert(max_decoded <= min_logit_rows);
  free_activations();
  const ActivationBytes of_rows = measure(make_shape(1, shape.rows), forward_memory());
  const Index cache = cache_bytes(shape) - of_rows.slots - of_rows.workspace;
  cache_memory_ = allocate<std::byte>(Category::activations, "cache", cache);
  slot_memory_ = allocate<std::byte>(Category::activations, "slots", of_rows.slots);
  workspace_memory_ = allocate<std::byte>(Category::workspace, "decode", of_rows.workspace);
  Arena arena(cache_memory_.data(), cache);
  cache_ = take_cache(arena, shape);
  rotary_->fill(ExecSpace(), cache_.rotary, config_.max_sequence_length);
}

// Layers take as many rows as their arrays have.
template <class P>
void Decoder<P>::plan_rows(Index rows) {
  if (shape_.tokens() == rows)
    return;
  shape_ = make_shape(1, rows);
  Arena slots(slot_memory_.data(), static_cast<Index>(slot_memory_.extent(0)));
  Arena workspace(workspace_memory_.data(), static_cast<Index>(workspace_memory_.extent(0)));
  plan_ = make_plan(slots, workspace, shape_, forward_memory());
  tensor_->use_workspace(plan_.scratch().full);
}

template <class P>
Matrix<Compute<P>> Decoder<P>::decode(const ExecSpace& exec, std::span<const SequenceToken> tokens, Index count) {
  const Region region("espalier::models::decode");
  const auto rows = static_cast<Index>(tokens.size());
  ESPALIER_ASSERT(rows > 0 && count <= rows && rows <= static_cast<Index>(cache_.rows.positions.extent(0)),
                  "wants at most CacheShape::rows tokens");
  std::vector<TokenId> ids;
  std::vector<int> sequences, positions;
  for (const SequenceToken& token : tokens) {
    ESPALIER_ASSERT(token.sequence >= 0 && token.sequence < static_cast<int>(cache_.layers.front().extent(0)) &&
                        token.position >= 0 && token.position < static_cast<int>(cache_.layers.front().extent(1)),
                    "a token outside of the cache");
    ids.push_back(token.token);
    sequences.push_back(token.sequence);
    positions.push_back(token.position);
  }
  require_tokens(ids.data(), rows, 0, config_.vocab_size);
  plan_rows(rows);
  const Chunk& layers = chunks_.front();
  Slot& slot = plan_.slot(0);
  upload<TokenId>(exec, slot.tokens, ids.data(), rows);
  upload<int>(exec, cache_.rows.sequences, sequences.data(), rows);
  upload<int>(exec, cache_.rows.positions, positions.data(), rows);
  const auto front = [&](const Tensor<int, 1>& all) { return Tensor<int, 1>(all.data(), rows); };
  const CachedRows cached{front(cache_.rows.sequences), front(cache_.rows.positions)};
  layers.embedding->forward(exec, slot.x, slot.tokens, rows, {}, cached.positions);
  Stream x = slot.x;  // (N, C)
  for (std::size_t i = 0; i < layers.blocks.size(); ++i) {
    layers.blocks[i].forward(exec, x, shape_, slot.blocks[i], cached.positions, {cache_.layers[i], cached});
    x = slot.blocks[i].y;
  }
  layers.head->forward(exec, x, slot.head);
  return layers.head->logits(exec, rows - count, count, slot.head, plan_.scratch().head);
}

#define ESPALIER_INSTANTIATE(P)                                    \
  template Index Decoder<P>::cache_bytes(const CacheShape&) const; \
  template void Decoder<P>::plan_cache(const CacheShape&);         \
  template Matrix<Compute<P>> Decoder<P>::decode(const ExecSpace&, std::span<const SequenceToken>, Index);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
