// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt.hpp"

#include <fmt/format.h>

#include "core/kokkos_compat.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/region.hpp"

namespace espalier {
namespace {

// Copies host tokens to the front of a device array.
void upload(const ExecSpace& exec, Tensor<TokenId, 1> to, const TokenId* from, Index count) {
  const Kokkos::View<const TokenId*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> source(from,
                                                                                                             count);
  Kokkos::deep_copy(exec, Kokkos::subview(to, std::pair<Index, Index>(0, count)), source);
}

}  // namespace

template <class T>
Gpt<T>::Gpt(ParameterStore<T>& parameters, const GptConfig& config)
    : config_(config),
      embedding_(parameters, config, {0, 0}),
      head_(parameters, config, {0, static_cast<int>(config.num_layers) + 1}, embedding_.token_table()) {
  for (int layer = 0; layer < config.num_layers; ++layer)
    blocks_.emplace_back(parameters, fmt::format("h.{}", layer), config, Placement{0, layer + 1});
}

template <class T>
AttentionShape Gpt<T>::attention_shape(Index batch, Index sequence_length) const {
  return {batch, sequence_length, config_.num_heads, config_.head_size()};
}

template <class T>
typename Gpt<T>::Slot Gpt<T>::take_slot(Arena& arena, const AttentionShape& shape) const {
  const Index rows = shape.batch * shape.sequence_length;
  Slot slot;
  slot.tokens = arena.take<TokenId>(rows);
  slot.targets = arena.take<TokenId>(rows);
  slot.embedded = arena.take<T>(rows, config_.hidden_size);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    slot.blocks.push_back(TransformerBlock<T>::Saved::take(arena, config_, shape));
  slot.head = Head<T>::Saved::take(arena, config_, rows);
  return slot;
}

template <class T>
typename Gpt<T>::Workspace Gpt<T>::take_workspace(Arena& arena, const AttentionShape& shape) const {
  const Index rows = shape.batch * shape.sequence_length;
  Workspace workspace;
  workspace.block = TransformerBlock<T>::Gradients::take(arena, config_, shape);
  workspace.head = Head<T>::Gradients::take(arena, config_, rows);
  workspace.dx[0] = arena.take<T>(rows, config_.hidden_size);
  workspace.dx[1] = arena.take<T>(rows, config_.hidden_size);
  return workspace;
}

template <class T>
typename Gpt<T>::ActivationBytes Gpt<T>::measure_activations(Index micro_batch_size, Index sequence_length,
                                                             int num_slots) const {
  const AttentionShape shape = attention_shape(micro_batch_size, sequence_length);
  Arena slot;
  take_slot(slot, shape);
  Arena workspace;
  take_workspace(workspace, shape);
  return {num_slots * slot.used_bytes(), workspace.used_bytes()};
}

template <class T>
void Gpt<T>::plan_activations(Index micro_batch_size, Index sequence_length, int num_slots) {
  shape_ = attention_shape(micro_batch_size, sequence_length);
  const ActivationBytes bytes = measure_activations(micro_batch_size, sequence_length, num_slots);
  slot_memory_ = allocate<std::byte>(Category::activations, "slots", bytes.slots);
  workspace_memory_ = allocate<std::byte>(Category::workspace, "backward", bytes.workspace);
  Arena slots(slot_memory_.data(), bytes.slots);
  slots_.clear();
  for (int slot = 0; slot < num_slots; ++slot)
    slots_.push_back(take_slot(slots, shape_));
  Arena workspace(workspace_memory_.data(), bytes.workspace);
  workspace_ = take_workspace(workspace, shape_);
  loss_ = Tensor<double, 0>(ledger_label(Category::workspace, "loss"));
}

template <class T>
typename Gpt<T>::Slot& Gpt<T>::load(const ExecSpace& exec, int slot, const TokenBatch& batch) {
  Slot& chosen = slots_.at(static_cast<std::size_t>(slot));
  upload(exec, chosen.tokens, batch.inputs, chosen.tokens.extent(0));
  upload(exec, chosen.targets, batch.targets, chosen.targets.extent(0));
  return chosen;
}

template <class T>
void Gpt<T>::run_layers(const ExecSpace& exec, Slot& slot) {
  embedding_.forward(exec, slot.embedded, slot.tokens, shape_.sequence_length);
  Tensor<T, 2> x = slot.embedded;  // (N, C)
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].forward(exec, x, shape_, slot.blocks[i]);
    x = slot.blocks[i].y;
  }
  head_.forward(exec, x, slot.head);
}

template <class T>
void Gpt<T>::forward(const ExecSpace& exec, int slot, const TokenBatch& batch, double loss_scale) {
  const Region region("espalier::models::forward");
  Slot& loaded = load(exec, slot, batch);
  run_layers(exec, loaded);
  head_.loss(exec, loaded.targets, static_cast<State<T>>(loss_scale), loaded.head);
  add_losses<State<T>>(exec, loss_, loaded.head.losses, loss_scale);
}

template <class T>
void Gpt<T>::evaluate(const ExecSpace& exec, int slot, const TokenBatch& batch, double loss_scale) {
  const Region region("espalier::models::evaluate");
  Slot& loaded = load(exec, slot, batch);
  run_layers(exec, loaded);
  head_.loss(exec, loaded.targets, State<T>(0), loaded.head);
  add_losses<State<T>>(exec, loss_, loaded.head.losses, loss_scale);
}

template <class T>
void Gpt<T>::backward(const ExecSpace& exec, int slot_index, const std::function<void(int)>& on_block_done) {
  const Region region("espalier::models::backward");
  const auto done = [&](int block) {
    if (on_block_done)
      on_block_done(block);
  };
  Slot& slot = slots_.at(static_cast<std::size_t>(slot_index));
  Tensor<T, 2> dy = workspace_.dx[0];  // (N, C)
  Tensor<T, 2> dx = workspace_.dx[1];  // (N, C)
  head_.backward_input(exec, dy, slot.head, workspace_.head);
  head_.backward_weight(exec, slot.head, workspace_.head);
  done(num_blocks() - 1);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward_input(exec, dx, dy, shape_, slot.blocks[i], workspace_.block);
    blocks_[i].backward_weight(exec, slot.blocks[i], workspace_.block);
    done(static_cast<int>(i) + 1);
    std::swap(dx, dy);
  }
  embedding_.backward_weight(exec, dy, slot.tokens, shape_.sequence_length);
  done(0);
}

template <class T>
Matrix<T> Gpt<T>::logits(const ExecSpace& exec, const std::vector<TokenId>& tokens) {
  ESPALIER_ASSERT(shape_.batch == 1 && static_cast<Index>(tokens.size()) <= shape_.sequence_length,
                  "espalier::Gpt::logits: wants activations planned for one sequence that holds all tokens");
  Slot& slot = slots_.at(0);
  std::vector<TokenId> padded = tokens;  // causal attention: what follows changes nothing before
  padded.resize(static_cast<std::size_t>(shape_.sequence_length), 0);
  upload(exec, slot.tokens, padded.data(), shape_.sequence_length);
  run_layers(exec, slot);
  return {slot.head.logits.data(), static_cast<Index>(tokens.size()), config_.vocab_size,
          static_cast<Index>(slot.head.logits.extent(1))};
}

template class Gpt<float>;
template class Gpt<double>;

}  // namespace espalier
