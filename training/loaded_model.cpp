// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loaded_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/memory_text.hpp"
#include "io/checkpoint_directory.hpp"
#include "parallel/agreement.hpp"
#include "parallel/texts.hpp"
#include "training/stored_config.hpp"
#include "training/training_state.hpp"

namespace espalier {

template <class P>
LoadedModel<P>::LoadedModel(const CheckpointReader& checkpoint, std::size_t available_bytes)
    : path_(checkpoint.path()),
      available_bytes_(available_bytes),
      shape_(stored_model(checkpoint)),
      model_(parameters_, shape_, one_chunk(shape_.num_layers, Recompute::full), TensorParallel<Compute<P>>()) {
  require_tensors(checkpoint, parameters_);  // before there is memory for what the config claims
  parameters_.lay_out();
  require_memory(0);
  parameters_.allocate_weights();
  load_weights(checkpoint, parameters_);
}

template <class P>
void LoadedModel<P>::require_memory(std::size_t activations) const {
  const std::size_t weights = static_cast<std::size_t>(parameters_.flat_size()) * sizeof(Compute<P>);
  if (available_bytes_ == 0 || weights + activations <= available_bytes_)
    return;
  const bool too_many = weights <= available_bytes_;
  throw Error(
      ExitCode::memory,
      {.what = "the model does not fit the memory that there is for a rank",
       .where = path_.string(),
       .got = fmt::format("a need of {}: {} of weights{}", budget_text(weights + activations), budget_text(weights),
                          too_many ? fmt::format(", {} of activations", budget_text(activations)) : ""),
       .wanted = fmt::format("at most {}", budget_text(available_bytes_)),
       .todo = too_many ? "lower the micro-batch or the sequence length"
                        : "use a machine with more memory, or fewer ranks on this one"});
}

template <class P>
void LoadedModel<P>::make_room(Index micro_batch, Index length) {
  const ActivationBytes bytes = model_.measure_activations(micro_batch, length, forward_memory());
  require_memory(static_cast<std::size_t>(bytes.slots + bytes.workspace));
  model_.plan_activations(micro_batch, length, forward_memory());
  length_ = length;
}

template <class P>
void LoadedModel<P>::visit_logits(const std::vector<TokenId>& tokens, Index count,
                                  const std::function<void(std::span<const float>)>& visit) {
  // The head has room for so many rows; what is more costs a forward pass each time.
  const Index most = logit_rows(length_, shape_.vocab_size, 1, most_logits);
  const auto end = static_cast<Index>(tokens.size());
  for (Index first = end - count; first < end; first += most) {
    const Index rows = std::min(most, end - first);
    const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(first + rows));
    visit(to_host(model_.logits(exec_, prefix, rows)));
  }
}

template <class P>
std::vector<float> LoadedModel<P>::to_host(const Matrix<Compute<P>>& logits) const {
  using T = Compute<P>;
  const Tensor<T, 1> memory(logits.data, (logits.rows - 1) * logits.stride + logits.cols);  // rows may be padded
  const auto host = Kokkos::create_mirror_view(memory);
  Kokkos::deep_copy(exec_, host, memory);
  compat::fence(exec_, "espalier::LoadedModel: the logits are read on the host");
  std::vector<float> values;
  for (Index row = 0; row < logits.rows; ++row)
    for (Index column = 0; column < logits.cols; ++column)
      values.push_back(static_cast<float>(host(row * logits.stride + column)));
  return values;
}

template <class P>
void LoadedModel<P>::make_room_to_generate(Index length) {
  const ActivationBytes bytes = model_.measure_activations(1, length, forward_memory());
  require_memory(static_cast<std::size_t>(bytes.slots + bytes.workspace + model_.cache_bytes(length)));
  model_.plan_activations(1, length, forward_memory());
  model_.plan_cache();
  length_ = length;
  cached_.clear();
}

template <class P>
std::vector<float> LoadedModel<P>::next_logits(const std::vector<TokenId>& tokens) {
  const bool goes_on = !cached_.empty() && tokens.size() == cached_.size() + 1 &&
                       std::equal(cached_.begin(), cached_.end(), tokens.begin());
  cached_ = tokens;
  return to_host(goes_on ? model_.decode(exec_, tokens.back(), static_cast<Index>(tokens.size()) - 1)
                         : model_.logits(exec_, tokens));
}

void load_newest(const std::string& given, const Communicator& world,
                 const std::function<void(const std::string&)>& note,
                 const std::function<void(const CheckpointReader&)>& load) {
  const auto note_once = [&](const std::string& text) {
    if (world.rank() == 0)
      note(text);
  };
  std::vector<std::string> found;
  attempt_together(world, ExitCode::checkpoint, [&] {
    if (world.rank() == 0)
      for (const Path& path : complete_checkpoints(given, note))
        found.push_back(path.string());
  });
  found = broadcast_texts(world, found, 0);
  use_newest({found.begin(), found.end()}, note_once, [&](const Path& path) {
    attempt_together(world, ExitCode::checkpoint, [&] { load(CheckpointReader(path)); });
  });
}

#define ESPALIER_INSTANTIATE(P) template class LoadedModel<P>;
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
