// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_chunk.hpp"

#include <fmt/format.h>

#include <functional>

namespace espalier {
namespace {

void tell(const std::function<void(int)>& done, int position) {
  if (done)
    done(position);
}

void run(const ExecSpace& exec, std::vector<QueueGraph>& graphs, std::size_t block, const std::function<void()>& work) {
  if (graphs.empty())
    work();
  else
    graphs[block].run(exec, work);
}

// What is there already counts this often in a gradient.
template <class T>
State<T> beta_of(bool is_first) {
  return is_first ? State<T>(0) : State<T>(1);
}

}  // namespace

template <class T, class Residual>
GptChunk<T, Residual>::GptChunk(ParameterStore<T>& parameters, const TensorParallel<T>& tensor,
                                const ModelConfig& config, const ChunkLayers& layers, int chunk)
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

template <class T, class Residual>
typename GptChunk<T, Residual>::Slot GptChunk<T, Residual>::take_slot(Arena& arena, const BlockShape& shape) const {
  Slot slot;
  if (embedding_)
    slot.tokens = arena.take<TokenId>(shape.tokens());
  slot.x = arena.take<Residual>(shape.rows, shape.channels);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    slot.blocks.push_back(TransformerBlock<T, Residual>::Saved::take(arena, shape, parts_in_slot(layers_.recompute)));
    slot.blocks.back().y = arena.take<Residual>(shape.rows, shape.channels);
  }
  if (head_) {
    slot.targets = arena.take<TokenId>(shape.tokens());
    slot.head = head_->take_saved(arena, shape.tokens());
  }
  return slot;
}

template <class T, class Residual>
typename GptChunk<T, Residual>::Gradients GptChunk<T, Residual>::take_gradients(Arena& arena, const BlockShape& shape,
                                                                                const Scratch& scratch,
                                                                                bool split) const {
  Gradients gradients;
  const std::size_t count = blocks_.size();
  for (std::size_t i = 0; i <= count; ++i) {
    const bool is_message = (i == 0 && !embedding_) || (i == count && !head_);  // sent or received while others work
    gradients.dx.push_back(split || is_message ? arena.take<Residual>(shape.rows, shape.channels) : scratch.dx[i % 2]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    gradients.blocks.push_back(split ? TransformerBlock<T, Residual>::Gradients::take(arena, shape)
                                     : scratch.gradients);
    gradients.recomputed.push_back(
        TransformerBlock<T, Residual>::Saved::take(arena, shape, parts_with_gradients(layers_.recompute, split)));
  }
  return gradients;
}

// All arrays of a block, wherever they lie.
template <class T, class Residual>
typename TransformerBlock<T, Residual>::Saved GptChunk<T, Residual>::saved_of(std::size_t block, const Slot& slot,
                                                                              const Gradients* gradients,
                                                                              const Scratch& scratch) const {
  typename TransformerBlock<T, Residual>::Saved saved = slot.blocks[block];
  if (gradients != nullptr)
    saved.borrow_from(gradients->recomputed[block]);
  saved.borrow_from(scratch.block);
  saved.norm1.x = block == 0 ? slot.x : slot.blocks[block - 1].y;
  saved.norm2.x = saved.h;
  return saved;
}

template <class T, class Residual>
void GptChunk<T, Residual>::forward(const ExecSpace& exec, const BlockShape& shape, Slot& slot, const Scratch& scratch,
                                    BlockGraphs& graphs, const BlockDone& done) const {
  if (embedding_) {
    embedding_->forward(exec, slot.x, slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
  Tensor<Residual, 2> x = slot.x;  // (R, C)
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    typename TransformerBlock<T, Residual>::Saved saved = saved_of(i, slot, nullptr, scratch);
    run(exec, graphs.forward, i, [&] { blocks_[i].forward(exec, x, shape, saved); });
    x = saved.y;
    tell(done, static_cast<int>(i) + 1);
  }
  if (head_) {
    head_->forward(exec, x, slot.head);
    tell(done, layers_.num_blocks() - 1);
  }
}

template <class T, class Residual>
void GptChunk<T, Residual>::block_backward_input(std::size_t block, const ExecSpace& exec, const BlockShape& shape,
                                                 const Slot& slot, Gradients& gradients, const Scratch& scratch,
                                                 BlockGraphs& graphs) const {
  typename TransformerBlock<T, Residual>::Saved saved = saved_of(block, slot, &gradients, scratch);
  run(exec, graphs.backward_input, block, [&] {
    if (layers_.recompute == Recompute::full)
      blocks_[block].recompute(exec, saved.norm1.x, shape, saved);
    blocks_[block].backward_input(exec, gradients.dx[block], gradients.dx[block + 1], shape, saved,
                                  gradients.blocks[block]);
  });
}

template <class T, class Residual>
void GptChunk<T, Residual>::block_backward_weight(std::size_t block, const ExecSpace& exec, const Slot& slot,
                                                  const Gradients& gradients, const Scratch& scratch,
                                                  BlockGraphs& graphs, bool is_first) const {
  typename TransformerBlock<T, Residual>::Saved saved = saved_of(block, slot, &gradients, scratch);
  run(exec, is_first ? graphs.first_backward_weight : graphs.backward_weight, block, [&] {
    if (layers_.recompute == Recompute::selective)
      blocks_[block].recompute_for_weight(exec, saved);
    blocks_[block].backward_weight(exec, saved, gradients.blocks[block], beta_of<T>(is_first));
  });
}

template <class T, class Residual>
void GptChunk<T, Residual>::zero_table_gradients(const ExecSpace& exec) const {
  if (embedding_)
    embedding_->zero_gradients(exec);  // its token table is the head's, too
  else if (head_)
    head_->zero_table_gradient(exec);
}

template <class T, class Residual>
void GptChunk<T, Residual>::backward(const ExecSpace& exec, const BlockShape& shape, const Slot& slot,
                                     Gradients& gradients, const Scratch& scratch, BlockGraphs& graphs, bool is_first,
                                     const BlockDone& done) const {
  if (head_) {
    head_->backward_input(exec, gradients.dx.back(), slot.head);
    tell(done, half_done);
    head_->backward_weight(exec, slot.head, beta_of<T>(is_first));
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    block_backward_input(i, exec, shape, slot, gradients, scratch, graphs);
    tell(done, half_done);
    block_backward_weight(i, exec, slot, gradients, scratch, graphs, is_first);
    tell(done, static_cast<int>(i) + 1);
  }
  if (embedding_) {
    embedding_->backward_weight(exec, gradients.dx.front(), slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
}

template <class T, class Residual>
void GptChunk<T, Residual>::backward_input(const ExecSpace& exec, const BlockShape& shape, const Slot& slot,
                                           Gradients& gradients, const Scratch& scratch, BlockGraphs& graphs,
                                           const BlockDone& done) const {
  if (head_) {
    head_->backward_input(exec, gradients.dx.back(), slot.head);
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    block_backward_input(i, exec, shape, slot, gradients, scratch, graphs);
    tell(done, static_cast<int>(i) + 1);
  }
}

template <class T, class Residual>
void GptChunk<T, Residual>::backward_weight(const ExecSpace& exec, const BlockShape& shape, const Slot& slot,
                                            const Gradients& gradients, const Scratch& scratch, BlockGraphs& graphs,
                                            bool is_first, const BlockDone& done) const {
  if (head_) {
    head_->backward_weight(exec, slot.head, beta_of<T>(is_first));
    tell(done, layers_.num_blocks() - 1);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    block_backward_weight(i, exec, slot, gradients, scratch, graphs, is_first);
    tell(done, static_cast<int>(i) + 1);
  }
  if (embedding_) {
    embedding_->backward_weight(exec, gradients.dx.front(), slot.tokens, shape.attention.sequence_length);
    tell(done, 0);
  }
}

#define ESPALIER_INSTANTIATE(T, R) template class GptChunk<T, R>;
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
