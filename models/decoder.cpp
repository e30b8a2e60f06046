// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/region.hpp"
#include "models/token_upload.hpp"

namespace espalier {
namespace {

constexpr TokenId any_ignored = std::numeric_limits<TokenId>::min();  // targets may be negative

void notify(const BlockDone& done, int position) {
  if (done)
    done(position);
}

void run(const ExecSpace& exec, std::vector<StreamGraph>& graphs, std::size_t block,
         const std::function<void()>& work) {
  if (graphs.empty())
    work();
  else
    graphs[block].run(exec, work);
}

}  // namespace

template <class P>
Decoder<P>::Decoder(ParameterStore<T>& parameters, const ModelConfig& config)
    : Decoder(parameters, config, one_chunk(config.num_layers), TensorParallel<T>()) {}

template <class P>
Decoder<P>::Decoder(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
                    const TensorParallel<T>& tensor)
    : config_(config),
      tensor_(std::make_unique<TensorParallel<T>>(tensor)),
      rotary_(std::make_unique<RotaryTable<T>>(config)),
      begins_gradients_(chunks.size(), false) {
  for (const ChunkLayers& layers : chunks) {
    const int number = num_chunks();
    Chunk& chunk = chunks_.emplace_back(Chunk{.layers = layers, .embedding = {}, .blocks = {}, .head = {}});
    if (layers.embedding)
      chunk.embedding.emplace(parameters, *tensor_, config, Placement{number, 0});
    for (int i = 0; i < layers.count; ++i)
      chunk.blocks.emplace_back(parameters, *tensor_, *rotary_, layers.first + i, config, Placement{number, i + 1});
    if (layers.head) {
      const Placement placement{number, layers.num_positions() - 1};
      chunk.head.emplace(parameters, *tensor_, config, placement, head_table(parameters, chunk, placement));
    }
  }
}

template <class P>
int Decoder<P>::head_table(ParameterStore<T>& parameters, const Chunk& chunk, Placement placement) const {
  if (!config_.tied_embeddings)
    return declare_token_embedding<T>(parameters, *tensor_, config_, placement, logits_here.multiple, "head.weight");
  if (chunk.embedding)
    return chunk.embedding->token_embedding();
  // A stage with the head alone holds a copy of the table, at the front of its flat arrays: reduced last there too.
  return declare_token_embedding<T>(parameters, *tensor_, config_, Placement{0, 0});
}

// ---- memory ----

template <class P>
ActivationPlan<P> Decoder<P>::make_plan(Arena& slots, Arena& workspace, const BlockShape& shape,
                                        const ActivationMemory& memory) const {
  return {slots, workspace, chunk_layers(), shape, memory};
}

template <class P>
std::vector<ChunkLayers> Decoder<P>::chunk_layers() const {
  std::vector<ChunkLayers> layers;
  for (const Chunk& chunk : chunks_)
    layers.push_back(chunk.layers);
  return layers;
}

template <class P>
BlockShape Decoder<P>::make_shape(Index micro_batch_size, Index sequence_length) const {
  return make_block_shape(config_, tensor_->size(), tensor_->sequence_parallel(), micro_batch_size, sequence_length,
                          tensor_->rank(), logits_here);
}

template <class P>
ActivationBytes Decoder<P>::measure(const BlockShape& shape, const ActivationMemory& memory) const {
  return activation_bytes(record_activations(shape, scalar_type_of<T>(), scalar_type_of<Residual<P>>()), chunk_layers(),
                          memory);
}

template <class P>
ActivationBytes Decoder<P>::measure_activations(Index micro_batch_size, Index sequence_length,
                                                const ActivationMemory& memory) const {
  return measure(make_shape(micro_batch_size, sequence_length), memory);
}

template <class P>
void Decoder<P>::plan_activations(Index micro_batch_size, Index sequence_length, int num_slots) {
  const auto chunks = static_cast<std::size_t>(num_chunks());
  plan_activations(
      micro_batch_size, sequence_length,
      {.chunks = std::vector<ChunkMemory>(chunks, {num_slots, 1, false}), .slots_together = num_chunks() * num_slots});
}

template <class P>
void Decoder<P>::plan_activations(Index micro_batch_size, Index sequence_length, const ActivationMemory& memory) {
  free_activations();  // the old and the new need not be there together
  shape_ = make_shape(micro_batch_size, sequence_length);
  const ActivationBytes bytes = measure(shape_, memory);
  slot_memory_ = allocate<std::byte>(Category::activations, "slots", bytes.slots);
  workspace_memory_ = allocate<std::byte>(Category::workspace, "backward", bytes.workspace);
  Arena slots(slot_memory_.data(), bytes.slots);
  Arena workspace(workspace_memory_.data(), bytes.workspace);
  plan_ = make_plan(slots, workspace, shape_, memory);
  ESPALIER_ASSERT(slots.used_bytes() == bytes.slots && workspace.used_bytes() == bytes.workspace,
                  fmt::format("the plan took {} + {} bytes of {} + {}", slots.used_bytes(), workspace.used_bytes(),
                              bytes.slots, bytes.workspace));
  tensor_->use_workspace(plan_.scratch().full);
  rotary_->fill(ExecSpace(), plan_.scratch().rotary, sequence_length);
  loss_ = Tensor<double, 0>(ledger_label(Category::workspace, "loss"));
}

template <class P>
void Decoder<P>::free_activations() {
  plan_ = {};
  graphs_.clear();  // of other addresses
  cache_ = {};
  shape_ = {};
  for (Tensor<std::byte, 1>* const memory : {&slot_memory_, &workspace_memory_, &cache_memory_})
    *memory = {};
}

template <class P>
typename Decoder<P>::BlockGraphs& Decoder<P>::graphs(ActivationIndex at) {
  const auto [entry, is_new] = graphs_.try_emplace({at.chunk, at.slot, at.gradients});
  const bool drops = config_.attention_dropout > 0 || config_.residual_dropout > 0;  // which a recording would repeat
  if (is_new && uses_graphs_ && !drops)
    for (std::vector<StreamGraph>* const part : {&entry->second.forward, &entry->second.backward_input,
                                                 &entry->second.backward_weight, &entry->second.first_backward_weight})
      part->resize(chunk(at).blocks.size());
  return entry->second;
}

// ---- forward ----

template <class P>
void Decoder<P>::load(const ExecSpace& exec, const Slot& slot, const TokenBatch& batch) const {
  if (const auto count = static_cast<Index>(slot.tokens.extent(0)); count > 0) {
    require_tokens(batch.inputs, count, 0, config_.vocab_size);
    upload<TokenId>(exec, slot.tokens, batch.inputs, count);
  }
  if (const auto count = static_cast<Index>(slot.targets.extent(0)); count > 0) {
    require_tokens(batch.targets, count, any_ignored, config_.vocab_size);
    upload<TokenId>(exec, slot.targets, batch.targets, count);
  }
  ESPALIER_ASSERT((batch.positions != nullptr) == (slot.positions.extent(0) > 0),
                  "positions come with the tokens just where activations are planned for separate documents");
  if (const auto count = static_cast<Index>(slot.positions.extent(0)); count > 0) {
    require_positions(batch.positions, count, shape_.attention.sequence_length);
    upload<int>(exec, slot.positions, batch.positions, count);
  }
}

// Through embedding and blocks, and through the norm of the head.
template <class P>
void Decoder<P>::forward_to_norm(const ExecSpace& exec, ActivationIndex at, const BlockDone& done) {
  const Chunk& layers = chunk(at);
  Slot& slot = plan_.slot(at);
  BlockGraphs& recorded = graphs(at);
  if (layers.embedding) {
    layers.embedding->forward(exec, slot.x, slot.tokens, shape_.attention.sequence_length, slot.dropout,
                              slot.positions);
    notify(done, 0);
  }
  Stream x = slot.x;  // (R, C)
  for (std::size_t i = 0; i < layers.blocks.size(); ++i) {
    run(exec, recorded.forward, i,
        [&] { layers.blocks[i].forward(exec, x, shape_of(slot), slot.blocks[i], slot.positions); });
    x = slot.blocks[i].y;
    notify(done, static_cast<int>(i) + 1);
  }
  if (layers.head) {
    layers.head->forward(exec, x, slot.head);
    notify(done, layers.layers.num_positions() - 1);
  }
}

template <class P>
void Decoder<P>::forward(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, TokenWeight weight,
                         const BlockDone& done) {
  const Region region("espalier::models::forward");
  Slot& slot = plan_.slot(at);
  load(exec, slot, batch);
  slot.dropout = DropoutContext{.is_training = true, .seed = dropout_seed_, .first_sample = batch.first_sample};
  forward_to_norm(exec, at, done);
  if (const auto& head = chunk(at).head) {
    typename Head<P>::Scratch& scratch = plan_.scratch().head;
    head->loss_and_gradient(exec, slot.targets, static_cast<State<T>>(weight.gradient), slot.head, scratch);
    add_losses<State<T>>(exec, loss_, scratch.losses, weight.loss);
  }
}

template <class P>
void Decoder<P>::evaluate(const ExecSpace& exec, ActivationIndex at, const TokenBatch& batch, double token_weight,
                          const BlockDone& done) {
  const Region region("espalier::models::evaluate");
  Slot& slot = plan_.slot(at);
  load(exec, slot, batch);
  slot.dropout = {};
  forward_to_norm(exec, at, done);
  if (const auto& head = chunk(at).head) {
    typename Head<P>::Scratch& scratch = plan_.scratch().head;
    head->loss(exec, slot.targets, slot.head, scratch);
    add_losses<State<T>>(exec, loss_, scratch.losses, token_weight);
  }
}

template <class P>
bool Decoder<P>::is_whole_model() const {
  return num_chunks() == 1 && layers(0).embedding && layers(0).head;
}

template <class P>
void Decoder<P>::evaluate(const ExecSpace& exec, const std::vector<TokenId>& tokens,
                          const std::vector<int>& positions) {
  ESPALIER_ASSERT(cache_.layers.empty() && shape_.attention.batch == 1, "wants activations planned for one sequence");
  ESPALIER_ASSERT(std::ssize(tokens) <= shape_.tokens(), "the sequence is longer than was planned");
  ESPALIER_ASSERT(is_whole_model() && tensor_->size() == 1, "wants the whole model on one rank");
  Slot& slot = plan_.slot(0);
  std::vector<TokenId> padded = tokens;  // causal attention: what follows changes nothing before
  padded.resize(static_cast<std::size_t>(shape_.tokens()), 0);
  std::vector<int> padded_positions = positions;
  if (!positions.empty())
    padded_positions.resize(padded.size(), 0);
  slot.dropout = {};
  load(exec, slot, {padded.data(), padded.data(), 0, positions.empty() ? nullptr : padded_positions.data()});
  forward_to_norm(exec, 0, {});
}

template <class P>
Matrix<Compute<P>> Decoder<P>::evaluated_logits(const ExecSpace& exec, Index first, Index rows) {
  const ActivationIndex at(0, num_chunks() - 1);
  ESPALIER_ASSERT(chunk(at).head, "wants the stage with the head");
  return chunk(at).head->logits(exec, first, rows, plan_.slot(at).head, plan_.scratch().head);
}

// ---- backward ----

template <class P>
void Decoder<P>::begin_gradients(const ExecSpace& exec) {
  const Region region("espalier::models::begin_gradients");
  for (const Chunk& chunk : chunks_) {
    if (chunk.embedding)
      chunk.embedding->zero_gradients(exec);
    if (chunk.head && !(chunk.embedding && config_.tied_embeddings))  // else the table is the embedding's
      chunk.head->zero_table_gradient(exec);
  }
  begins_gradients_.assign(chunks_.size(), true);
}

// How often what is there already counts in the chunk's next weight gradients: 0 for the first of a step, then 1.
template <class P>
State<Compute<P>> Decoder<P>::beta(ActivationIndex at) {
  const auto chunk = static_cast<std::size_t>(at.chunk);
  const bool is_first = begins_gradients_[chunk];
  begins_gradients_[chunk] = false;
  return is_first ? State<T>(0) : State<T>(1);
}

template <class P>
void Decoder<P>::block_backward_input(std::size_t block, const ExecSpace& exec, ActivationIndex at) {
  const Chunk& layers = chunk(at);
  typename ActivationPlan<P>::Gradients& gradients = plan_.gradients(at);
  typename TransformerBlock<P>::Saved saved = plan_.saved_in_backward(at, block);
  const Slot& slot = plan_.slot(at);
  const BlockShape shape = shape_of(slot);
  run(exec, graphs(at).backward_input, block, [&] {
    if (TransformerBlock<P>::recomputes_for_input(layers.layers.recompute))
      layers.blocks[block].recompute(exec, saved.norm1.x, shape, saved, slot.positions);
    layers.blocks[block].backward_input(exec, gradients.dx[block], gradients.dx[block + 1], shape, saved,
                                        gradients.blocks[block], slot.positions);
  });
}

template <class P>
void Decoder<P>::block_backward_weight(std::size_t block, const ExecSpace& exec, ActivationIndex at, State<T> beta) {
  const Chunk& layers = chunk(at);
  typename TransformerBlock<P>::Saved saved = plan_.saved_in_backward(at, block);
  BlockGraphs& recorded = graphs(at);
  run(exec, beta == 0 ? recorded.first_backward_weight : recorded.backward_weight, block, [&] {
    if (TransformerBlock<P>::recomputes_for_weight(layers.layers.recompute))
      layers.blocks[block].recompute_for_weight(exec, saved);
    layers.blocks[block].backward_weight(exec, shape_, saved, plan_.gradients(at).blocks[block], beta);
  });
}

template <class P>
void Decoder<P>::backward(const ExecSpace& exec, ActivationIndex at, const BlockDone& done) {
  const Region region("espalier::models::backward");
  const Chunk& layers = chunk(at);
  const Slot& slot = plan_.slot(at);
  const auto& dx = plan_.gradients(at).dx;
  const State<T> keep = beta(at);
  if (layers.head) {
    layers.head->backward_input(exec, dx.back(), slot.head);
    notify(done, half_done);
    layers.head->backward_weight(exec, slot.head, keep);
    notify(done, layers.layers.num_positions() - 1);
  }
  for (std::size_t i = layers.blocks.size(); i-- > 0;) {
    block_backward_input(i, exec, at);
    notify(done, half_done);
    block_backward_weight(i, exec, at, overwrites_layer_gradients_ ? State<T>(0) : keep);
    notify(done, static_cast<int>(i) + 1);
  }
  if (layers.embedding) {
    layers.embedding->backward_weight(exec, dx.front(), slot.tokens, plan_.scratch().embedding,
                                      shape_.attention.sequence_length, slot.dropout, slot.positions);
    notify(done, 0);
  }
}

template <class P>
void Decoder<P>::backward_input(const ExecSpace& exec, ActivationIndex at, const BlockDone& done) {
  const Region region("espalier::models::backward_input");
  const Chunk& layers = chunk(at);
  if (layers.head) {
    layers.head->backward_input(exec, plan_.gradients(at).dx.back(), plan_.slot(at).head);
    notify(done, layers.layers.num_positions() - 1);
  }
  for (std::size_t i = layers.blocks.size(); i-- > 0;) {
    block_backward_input(i, exec, at);
    notify(done, static_cast<int>(i) + 1);
  }
}

template <class P>
void Decoder<P>::backward_weight(const ExecSpace& exec, ActivationIndex at, const BlockDone& done) {
  const Region region("espalier::models::backward_weight");
  const Chunk& layers = chunk(at);
  const Slot& slot = plan_.slot(at);
  const State<T> keep = beta(at);
  if (layers.head) {
    layers.head->backward_weight(exec, slot.head, keep);
    notify(done, layers.layers.num_positions() - 1);
  }
  for (std::size_t i = layers.blocks.size(); i-- > 0;) {
    block_backward_weight(i, exec, at, overwrites_layer_gradients_ ? State<T>(0) : keep);
    notify(done, static_cast<int>(i) + 1);
  }
  if (layers.embedding) {
    layers.embedding->backward_weight(exec, plan_.gradients(at).dx.front(), slot.tokens, plan_.scratch().embedding,
                                      shape_.attention.sequence_length, slot.dropout, slot.positions);
    notify(done, 0);
  }
}

#define ESPALIER_INSTANTIATE(P) template class Decoder<P>;
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
