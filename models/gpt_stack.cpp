// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_stack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/ops/cross_entropy.hpp"

namespace espalier {
namespace {

constexpr TokenId any_ignored = std::numeric_limits<TokenId>::min();  // targets may be negative

// The one place where tokens enter a model: what a kernel is given lies in its tables.
void require_tokens(const TokenId* tokens, Index count, TokenId least, Index vocab_size) {
  const TokenId* const beyond = std::find_if(
      tokens, tokens + count, [=](TokenId token) { return token < least || static_cast<Index>(token) >= vocab_size; });
  if (beyond != tokens + count)
    throw Error(ExitCode::data, {.what = "a token is beyond the model's vocabulary",
                                 .where = fmt::format("token {} of {}", beyond - tokens, count),
                                 .got = fmt::format("id {}", *beyond),
                                 .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                                 .todo = "use tokens of the model's own tokenizer, or raise model.vocab_size"});
}

// Copies host tokens to the front of a device array.
void upload(const ExecSpace& exec, Tensor<TokenId, 1> to, const TokenId* from, Index count) {
  const Kokkos::View<const TokenId*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> source(from,
                                                                                                             count);
  Kokkos::deep_copy(exec, Kokkos::subview(to, std::pair<Index, Index>(0, count)), source);
}

}  // namespace

template <class T, class Residual>
GptStack<T, Residual>::GptStack(ParameterStore<T>& parameters, const ModelConfig& config,
                                const std::vector<ChunkLayers>& chunks, const TensorParallel<T>& tensor)
    : config_(config), tensor_(std::make_unique<TensorParallel<T>>(tensor)), begins_gradients_(chunks.size(), false) {
  for (std::size_t i = 0; i < chunks.size(); ++i)
    chunks_.emplace_back(parameters, *tensor_, config, chunks[i], static_cast<int>(i));
}

// Slots of each chunk, or, where that takes less, as many as all chunks ever hold together, each of which has room for
// a micro-batch of any chunk.
template <class T, class Residual>
typename GptStack<T, Residual>::Slots GptStack<T, Residual>::take_slots(Arena& arena, const BlockShape& shape,
                                                                        const StackMemory& memory) const {
  Index apart = 0;
  Index largest = 0;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    Arena one;
    chunks_[c].take_slot(one, shape);
    apart += memory.chunks.at(c).slots * one.used_bytes();
    largest = std::max(largest, one.used_bytes());
  }
  Slots slots{.shared = memory.slots_together * largest < apart,
              .by_chunk = std::vector<std::vector<Slot>>(chunks_.size())};
  if (slots.shared) {
    for (int i = 0; i < memory.slots_together; ++i) {
      const Tensor<std::byte, 1> bytes = arena.take<std::byte>(largest);
      for (std::size_t c = 0; c < chunks_.size(); ++c) {
        Arena place(bytes.data(), largest);
        slots.by_chunk[c].push_back(chunks_[c].take_slot(place, shape));
      }
    }
    return slots;
  }
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    for (int i = 0; i < memory.chunks[c].slots; ++i)
      slots.by_chunk[c].push_back(chunks_[c].take_slot(arena, shape));
  return slots;
}

// What the chunks of a rank need while one of them computes; a chunk that recomputes more needs more.
template <class T, class Residual>
typename GptChunk<T, Residual>::Scratch GptStack<T, Residual>::take_scratch(Arena& arena, const BlockShape& shape,
                                                                            bool split) const {
  Scratch scratch;
  Recompute mode = Recompute::none;
  for (const GptChunk<T, Residual>& chunk : chunks_)
    mode = std::max(mode, chunk.layers().recompute);
  scratch.block = TransformerBlock<T, Residual>::Saved::take(arena, shape, parts_in_scratch(mode));
  if (!split) {
    scratch.gradients = TransformerBlock<T, Residual>::Gradients::take(arena, shape);
    for (Tensor<Residual, 2>& dx : scratch.dx)
      dx = arena.take<Residual>(shape.rows, shape.channels);
  }
  if (chunks_.back().layers().head)
    scratch.head = chunks_.back().head().take_scratch(arena, shape.tokens());
  return scratch;
}

template <class T, class Residual>
typename GptStack<T, Residual>::Workspace GptStack<T, Residual>::take_workspace(
    Arena& arena, const BlockShape& shape, const std::vector<ChunkMemory>& memory) const {
  Workspace workspace;
  const bool split = std::all_of(memory.begin(), memory.end(), [](const ChunkMemory& chunk) { return chunk.split; });
  workspace.scratch = take_scratch(arena, shape, split);
  workspace.gradients.resize(chunks_.size());
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    for (int i = 0; i < memory.at(c).gradients; ++i)
      workspace.gradients[c].push_back(chunks_[c].take_gradients(arena, shape, workspace.scratch, memory[c].split));
  if (tensor_->template needs_workspace<Residual>())
    workspace.full = arena.take<T>(shape.tokens(), shape.channels);
  return workspace;
}

template <class T, class Residual>
ActivationBytes GptStack<T, Residual>::measure_activations(Index micro_batch_size, Index sequence_length,
                                                           const StackMemory& memory) const {
  const BlockShape shape = make_block_shape(config_, *tensor_, micro_batch_size, sequence_length);
  Arena slots;
  take_slots(slots, shape, memory);
  Arena workspace;
  take_workspace(workspace, shape, memory.chunks);
  return {slots.used_bytes(), workspace.used_bytes()};
}

template <class T, class Residual>
void GptStack<T, Residual>::plan_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory) {
  shape_ = make_block_shape(config_, *tensor_, micro_batch_size, sequence_length);
  const ActivationBytes bytes = measure_activations(micro_batch_size, sequence_length, memory);
  slots_ = {};
  workspace_ = {};
  graphs_.clear();    // of other addresses
  slot_memory_ = {};  // freed first: the old and the new need not be there together
  workspace_memory_ = {};
  slot_memory_ = allocate<std::byte>(Category::activations, "slots", bytes.slots);
  workspace_memory_ = allocate<std::byte>(Category::workspace, "backward", bytes.workspace);
  Arena slots(slot_memory_.data(), bytes.slots);
  slots_ = take_slots(slots, shape_, memory);
  Arena workspace(workspace_memory_.data(), bytes.workspace);
  workspace_ = take_workspace(workspace, shape_, memory.chunks);
  tensor_->use_workspace(workspace_.full);
  loss_ = Tensor<double, 0>(ledger_label(Category::workspace, "loss"));
}

template <class T, class Residual>
const typename GptChunk<T, Residual>::Slot& GptStack<T, Residual>::slot(MicrobatchPlace place) const {
  return slots_.by_chunk.at(static_cast<std::size_t>(place.chunk)).at(static_cast<std::size_t>(place.slot));
}

template <class T, class Residual>
typename GptChunk<T, Residual>::Slot& GptStack<T, Residual>::slot(MicrobatchPlace place) {
  return slots_.by_chunk.at(static_cast<std::size_t>(place.chunk)).at(static_cast<std::size_t>(place.slot));
}

template <class T, class Residual>
const typename GptChunk<T, Residual>::Gradients& GptStack<T, Residual>::gradients(MicrobatchPlace place) const {
  return workspace_.gradients.at(static_cast<std::size_t>(place.chunk)).at(static_cast<std::size_t>(place.gradients));
}

template <class T, class Residual>
typename GptChunk<T, Residual>::Gradients& GptStack<T, Residual>::gradients(MicrobatchPlace place) {
  return workspace_.gradients.at(static_cast<std::size_t>(place.chunk)).at(static_cast<std::size_t>(place.gradients));
}

template <class T, class Residual>
BlockGraphs& GptStack<T, Residual>::graphs(MicrobatchPlace place) {
  const auto [entry, is_new] = graphs_.try_emplace({place.chunk, place.slot, place.gradients});
  if (is_new && uses_graphs_)
    for (std::vector<QueueGraph>* const part : {&entry->second.forward, &entry->second.backward_input,
                                                &entry->second.backward_weight, &entry->second.first_backward_weight})
      part->resize(static_cast<std::size_t>(chunk(place).layers().count));
  return entry->second;
}

template <class T, class Residual>
void GptStack<T, Residual>::load(const ExecSpace& exec, Slot& slot, const TokenBatch& batch) const {
  if (const auto count = static_cast<Index>(slot.tokens.extent(0)); count > 0) {
    require_tokens(batch.inputs, count, 0, config_.vocab_size);
    upload(exec, slot.tokens, batch.inputs, count);
  }
  if (const auto count = static_cast<Index>(slot.targets.extent(0)); count > 0) {
    require_tokens(batch.targets, count, any_ignored, config_.vocab_size);
    upload(exec, slot.targets, batch.targets, count);
  }
}

template <class T, class Residual>
void GptStack<T, Residual>::forward(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch,
                                    TokenWeight weight, const BlockDone& done) {
  Slot& target = slot(place);
  load(exec, target, batch);
  chunk(place).forward(exec, shape_, target, workspace_.scratch, graphs(place), done);
  if (chunk(place).layers().head) {
    typename Head<T, Residual>::Scratch& scratch = workspace_.scratch.head;
    chunk(place).head().loss_and_gradient(exec, target.targets, static_cast<State<T>>(weight.gradient), target.head,
                                          scratch);
    add_losses<State<T>>(exec, loss_, scratch.losses, weight.loss);
  }
}

template <class T, class Residual>
void GptStack<T, Residual>::evaluate(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch,
                                     double token_weight) {
  Slot& target = slot(place);
  load(exec, target, batch);
  chunk(place).forward(exec, shape_, target, workspace_.scratch, graphs(place), {});
  if (chunk(place).layers().head) {
    typename Head<T, Residual>::Scratch& scratch = workspace_.scratch.head;
    chunk(place).head().loss(exec, target.targets, target.head, scratch);
    add_losses<State<T>>(exec, loss_, scratch.losses, token_weight);
  }
}

template <class T, class Residual>
void GptStack<T, Residual>::begin_gradients(const ExecSpace& exec) {
  for (const GptChunk<T, Residual>& chunk : chunks_)
    chunk.zero_table_gradients(exec);
  begins_gradients_.assign(chunks_.size(), true);
}

template <class T, class Residual>
bool GptStack<T, Residual>::takes_first(MicrobatchPlace place) {
  const auto chunk = static_cast<std::size_t>(place.chunk);
  const bool is_first = begins_gradients_[chunk];
  begins_gradients_[chunk] = false;
  return is_first;
}

template <class T, class Residual>
void GptStack<T, Residual>::backward(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  chunk(place).backward(exec, shape_, slot(place), gradients(place), workspace_.scratch, graphs(place),
                        takes_first(place), done);
}

template <class T, class Residual>
void GptStack<T, Residual>::backward_input(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  chunk(place).backward_input(exec, shape_, slot(place), gradients(place), workspace_.scratch, graphs(place), done);
}

template <class T, class Residual>
void GptStack<T, Residual>::backward_weight(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  chunk(place).backward_weight(exec, shape_, slot(place), gradients(place), workspace_.scratch, graphs(place),
                               takes_first(place), done);
}

template <class T, class Residual>
Matrix<T> GptStack<T, Residual>::logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows) {
  const auto count = static_cast<Index>(tokens.size());
  ESPALIER_ASSERT(shape_.attention.batch == 1 && count <= shape_.tokens() && rows <= count,
                  "wants activations planned for one sequence that holds all tokens");
  ESPALIER_ASSERT(num_chunks() == 1 && layers(0).embedding && layers(0).head && tensor_->size() == 1,
                  "wants the whole model on one rank");
  Slot& target = slot(0);
  std::vector<TokenId> padded = tokens;  // causal attention: what follows changes nothing before
  padded.resize(static_cast<std::size_t>(shape_.tokens()), 0);
  require_tokens(padded.data(), shape_.tokens(), 0, config_.vocab_size);
  upload(exec, target.tokens, padded.data(), shape_.tokens());
  chunk(0).forward(exec, shape_, target, workspace_.scratch, graphs(MicrobatchPlace()), {});
  return chunk(0).head().logits(exec, count - rows, rows, target.head, workspace_.scratch.head);
}

#define ESPALIER_INSTANTIATE(T, R) template class GptStack<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
