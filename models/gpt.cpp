// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt.hpp"

#include "core/region.hpp"

namespace espalier {
namespace {

template <class Stack, class T>
Stack make_stack(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
                 const TensorParallel<T>& tensor, ResidualType residual) {
  if constexpr (has_masters<T>)
    if (residual == ResidualType::state)
      return Stack(std::in_place_type<GptStack<T, State<T>>>, parameters, config, chunks, tensor);
  return Stack(std::in_place_type<GptStack<T, T>>, parameters, config, chunks, tensor);
}

template <class Residual>
Tensor<unsigned char, 1> bytes_of(const Tensor2<Residual>& rows) {
  return Tensor<unsigned char, 1>(reinterpret_cast<unsigned char*>(rows.data()), rows.size() * sizeof(Residual));
}

}  // namespace

template <class T>
Gpt<T>::Gpt(ParameterStore<T>& parameters, const ModelConfig& config)
    : Gpt(parameters, config, one_chunk(config.num_layers), TensorParallel<T>()) {}

template <class T>
Gpt<T>::Gpt(ParameterStore<T>& parameters, const ModelConfig& config, const std::vector<ChunkLayers>& chunks,
            const TensorParallel<T>& tensor, ResidualType residual)
    : stack_(make_stack<Stack>(parameters, config, chunks, tensor, residual)) {}

template <class T>
void Gpt<T>::plan_activations(Index micro_batch_size, Index sequence_length, int num_slots) {
  const auto chunks = static_cast<std::size_t>(num_chunks());
  plan_activations(
      micro_batch_size, sequence_length,
      {.chunks = std::vector<ChunkMemory>(chunks, {num_slots, 1, false}), .slots_together = num_chunks() * num_slots});
}

template <class T>
void Gpt<T>::plan_activations(Index micro_batch_size, Index sequence_length, const StackMemory& memory) {
  std::visit([&](auto& stack) { stack.plan_activations(micro_batch_size, sequence_length, memory); }, stack_);
}

template <class T>
ActivationBytes Gpt<T>::measure_activations(Index micro_batch_size, Index sequence_length,
                                            const StackMemory& memory) const {
  return std::visit([&](auto& stack) { return stack.measure_activations(micro_batch_size, sequence_length, memory); },
                    stack_);
}

template <class T>
void Gpt<T>::forward(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, TokenWeight weight,
                     const BlockDone& done) {
  const Region region("espalier::models::forward");
  std::visit([&](auto& stack) { stack.forward(exec, place, batch, weight, done); }, stack_);
}

template <class T>
void Gpt<T>::evaluate(const ExecSpace& exec, MicrobatchPlace place, const TokenBatch& batch, double token_weight) {
  const Region region("espalier::models::evaluate");
  std::visit([&](auto& stack) { stack.evaluate(exec, place, batch, token_weight); }, stack_);
}

template <class T>
void Gpt<T>::begin_gradients(const ExecSpace& exec) {
  const Region region("espalier::models::begin_gradients");
  std::visit([&](auto& stack) { stack.begin_gradients(exec); }, stack_);
}

template <class T>
void Gpt<T>::backward(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  const Region region("espalier::models::backward");
  std::visit([&](auto& stack) { stack.backward(exec, place, done); }, stack_);
}

template <class T>
void Gpt<T>::backward_input(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  const Region region("espalier::models::backward_input");
  std::visit([&](auto& stack) { stack.backward_input(exec, place, done); }, stack_);
}

template <class T>
void Gpt<T>::backward_weight(const ExecSpace& exec, MicrobatchPlace place, const BlockDone& done) {
  const Region region("espalier::models::backward_weight");
  std::visit([&](auto& stack) { stack.backward_weight(exec, place, done); }, stack_);
}

template <class T>
typename Gpt<T>::Message Gpt<T>::input(MicrobatchPlace place) const {
  return std::visit([&](auto& stack) { return bytes_of(stack.input(place)); }, stack_);
}

template <class T>
typename Gpt<T>::Message Gpt<T>::output(MicrobatchPlace place) const {
  return std::visit([&](auto& stack) { return bytes_of(stack.output(place)); }, stack_);
}

template <class T>
typename Gpt<T>::Message Gpt<T>::output_gradient(MicrobatchPlace place) const {
  return std::visit([&](auto& stack) { return bytes_of(stack.output_gradient(place)); }, stack_);
}

template <class T>
typename Gpt<T>::Message Gpt<T>::input_gradient(MicrobatchPlace place) const {
  return std::visit([&](auto& stack) { return bytes_of(stack.input_gradient(place)); }, stack_);
}

template <class T>
Matrix<T> Gpt<T>::logits(const ExecSpace& exec, const std::vector<TokenId>& tokens, Index rows) {
  return std::visit([&](auto& stack) { return stack.logits(exec, tokens, rows); }, stack_);
}

template <class T>
Tensor<double, 0> Gpt<T>::loss() const {
  return std::visit([&](auto& stack) { return stack.loss(); }, stack_);
}

template <class T>
const ModelConfig& Gpt<T>::config() const {
  return std::visit([&](auto& stack) -> const ModelConfig& { return stack.config(); }, stack_);
}

template <class T>
const TensorParallel<T>& Gpt<T>::tensor() const {
  return std::visit([&](auto& stack) -> const TensorParallel<T>& { return stack.tensor(); }, stack_);
}

template <class T>
const ChunkLayers& Gpt<T>::layers(int chunk) const {
  return std::visit([&](auto& stack) -> const ChunkLayers& { return stack.layers(chunk); }, stack_);
}

template <class T>
int Gpt<T>::num_chunks() const {
  return std::visit([&](auto& stack) { return stack.num_chunks(); }, stack_);
}

#define ESPALIER_INSTANTIATE(T) template class Gpt<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
