// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_chunk.hpp"

#include <fmt/format.h>

namespace espalier {
namespace {

void tell(const std::function<void(int)>& done, int position) {
  if (done)
    done(position);
}

}  // namespace

template <class T>
GptChunk<T>::GptChunk(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const GptConfig& config,
                      const ChunkLayers& layers, int chunk)
    : layers_(layers) {
  if (layers.embedding)
    embedding_.emplace(parameters, tensor, config, Placement{chunk, 0});
  for (int i = 0; i < layers.count; ++i)
    blocks_.emplace_back(parameters, tensor, fmt::format("h.{}", layers.first + i), config, Placement{chunk, i + 1});
  if (layers.head) {
    // A stage with the head alone holds a copy of the table, at the front of its flat arrays: reduced last there too.
    const int table =
        embedding_ ? embedding_->token_table() : declare_token_table<T>(parameters, tensor, config, Placement{0, 0});
    head_.emplace(parameters, tensor, config, Placement{chunk, layers.num_blocks() - 1}, table);
  }
}

template <class T>
typename GptChunk<T>::Slot GptChunk<T>::take_slot(Arena& arena, const BlockShape& shape) const {
  Slot slot;
  if (embedding_)
    slot.tokens = arena.take<TokenId>(shape.tokens());
  slot.x = arena.take<T>(shape.rows, shape.channels);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    slot.blocks.push_back(TransformerBlock<T>::Saved::take(arena, shape));
  if (head_) {
    slot.targets = arena.take<TokenId>(shape.tokens());
    slot.head = head_->take_saved(arena, shape.tokens());
  }
  return slot;
}

template <class T>
typename GptChunk<T>::Gradients GptChunk<T>::take_gradients(Arena& arena, const BlockShape& shape, bool split) const {
  Gradients gradients;
  const std::size_t count = blocks_.size();
  const auto residual = [&] { return arena.take<T>(shape.rows, shape.channels); };
  std::array<Tensor<T, 2>, 2> turns;  // (R, C): in front of and behind the block at work
  if (!split)
    turns = {residual(), residual()};
  for (std::size_t i = 0; i <= count; ++i) {
    const bool is_message = (i == 0 && !embedding_) || (i == count && !head_);  // sent or received while others work
    gradients.dx.push_back(split || is_message ? residual() : turns[i % 2]);
  }
  for (std::size_t i = 0; i < count; ++i)
    gradients.blocks.push_back(split || i == 0 ? TransformerBlock<T>::Gradients::take(arena, shape)
                                               : gradients.blocks.front());
  if (head_)
    gradients.head = head_->take_gradients(arena, shape.tokens());
  return gradients;
}

template <class T>
void GptChunk<T>::forward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, const BlockDone& done) const {
  if (embedding_) {
    embedding_->forward(exec, slot.x, slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
  Tensor<T, 2> x = slot.x;  // (R, C)
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].forward(exec, x, shape, slot.blocks[i]);
    x = slot.blocks[i].y;
    tell(done, static_cast<int>(i) + 1);
  }
  if (head_) {
    head_->forward(exec, x, slot.head);
    tell(done, layers_.num_blocks() - 1);
  }
}

template <class T>
void GptChunk<T>::backward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, Gradients& gradients,
                           const BlockDone& done) const {
  if (head_) {
    head_->backward_input(exec, gradients.dx.back(), slot.head, gradients.head);
    tell(done, half_done);
    head_->backward_weight(exec, slot.head, gradients.head);
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward_input(exec, gradients.dx[i], gradients.dx[i + 1], shape, slot.blocks[i], gradients.blocks[i]);
    tell(done, half_done);
    blocks_[i].backward_weight(exec, slot.blocks[i], gradients.blocks[i]);
    tell(done, static_cast<int>(i) + 1);
  }
  if (embedding_) {
    embedding_->backward_weight(exec, gradients.dx.front(), slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
}

template <class T>
void GptChunk<T>::backward_input(const ExecSpace& exec, const BlockShape& shape, const Slot& slot, Gradients& gradients,
                                 const BlockDone& done) const {
  if (head_) {
    head_->backward_input(exec, gradients.dx.back(), slot.head, gradients.head);
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward_input(exec, gradients.dx[i], gradients.dx[i + 1], shape, slot.blocks[i], gradients.blocks[i]);
    tell(done, static_cast<int>(i) + 1);
  }
}

template <class T>
void GptChunk<T>::backward_weight(const ExecSpace& exec, const BlockShape& shape, const Slot& slot,
                                  const Gradients& gradients, const BlockDone& done) const {
  if (head_) {
    head_->backward_weight(exec, slot.head, gradients.head);
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward_weight(exec, slot.blocks[i], gradients.blocks[i]);
    tell(done, static_cast<int>(i) + 1);
  }
  if (embedding_) {
    embedding_->backward_weight(exec, gradients.dx.front(), slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
}

template class GptChunk<float>;
template class GptChunk<double>;

}  // namespace espalier
