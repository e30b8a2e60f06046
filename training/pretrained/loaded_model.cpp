// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/loaded_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "models/layout_rules.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/step/logits_to_host.hpp"

namespace espalier {

namespace {

// However many sequences there are, each is taken in by pieces of the same lengths.
CacheShape cache_shape(Index sequences, Index length) {
  return {.sequences = sequences, .length = length, .rows = std::min(length, max_decoded)};
}

// The model of the checkpoint, if so many ranks can share it.
ModelConfig model_for(const CheckpointReader& checkpoint, int ranks) {
  ModelConfig model = stored_model(checkpoint);
  const std::vector<Index> degrees = tensor_degrees(model);
  if (std::ranges::find(degrees, ranks) != degrees.end())
    return model;
  throw Error(
      ExitCode::usage,
      {.what = "the ranks cannot share the model: each needs the same number of heads and of feed-forward channels",
       .where = checkpoint.path().string(),
       .got = fmt::format("{} ranks for {} heads, {} of keys and values, and {} channels", ranks, model.num_heads,
                          model.kv_heads(), model.ffn_hidden_size),
       .wanted = fmt::format("{} ranks", fmt::join(degrees, ", ")),
       .todo = "start one of these numbers of ranks"});
}

template <class T>
TensorParallel<T> tensor_of(const Communicator* tensor) {
  return tensor != nullptr ? TensorParallel<T>(*tensor, false) : TensorParallel<T>();
}

}  // namespace

template <class P>
LoadedModel<P>::LoadedModel(const CheckpointReader& checkpoint, std::size_t available_bytes, const Communicator* tensor)
    : path_(checkpoint.path()),
      available_bytes_(available_bytes),
      tensor_(tensor),
      shape_(model_for(checkpoint, tensor != nullptr ? tensor->size() : 1)),
      model_(parameters_, shape_, one_chunk(shape_.num_layers, Recompute::full), tensor_of<Compute<P>>(tensor)) {
  require_tensors(checkpoint, parameters_.parameters());  // before there is memory for what the config claims
  parameters_.lay_out();
  require_memory(0);
  parameters_.allocate_weights();
  load_weights(checkpoint, parameters_);
}

template <class P>
std::size_t LoadedModel<P>::weight_bytes() const {
  return static_cast<std::size_t>(parameters_.flat_size()) * sizeof(Compute<P>);
}

template <class P>
void LoadedModel<P>::require_memory(std::size_t activations, const std::string& todo) const {
  const std::size_t weights = weight_bytes();
  if (available_bytes_ == 0 || weights + activations <= available_bytes_)
    return;
  const bool too_many = weights <= available_bytes_;
  throw Error(
      ExitCode::memory,
      {.what = "the model does not fit the memory of a rank",
       .where = path_.string(),
       .got = fmt::format("a need of {}: {} of weights{}", budget_text(weights + activations), budget_text(weights),
                          too_many ? fmt::format(", {} of activations", budget_text(activations)) : ""),
       .wanted = fmt::format("at most {}", budget_text(available_bytes_)),
       .todo = too_many ? todo
               : tensor_ != nullptr
                   ? "use a machine with more memory, or more ranks on more machines, because ranks share the model"
                   : "use a machine with more memory, or fewer ranks on this one"});
}

template <class P>
void LoadedModel<P>::allocate_activations(Index micro_batch, Index length, bool separate_documents) {
  const ActivationMemory memory = forward_memory(separate_documents);
  const ActivationBytes bytes = model_.measure_activations(micro_batch, length, memory);
  require_memory(static_cast<std::size_t>(bytes.slots + bytes.workspace),
                 "lower the micro-batch or the sequence length");
  model_.plan_activations(micro_batch, length, memory);
  length_ = length;
}

template <class P>
void LoadedModel<P>::visit_logits(const std::vector<TokenId>& tokens, Index count,
                                  const std::function<void(std::span<const float>)>& visit,
                                  const std::vector<int>& positions) {
  const Index most = logit_rows(length_, shape_.vocab_size, 1, logits_here.max_at_once);  // that the head holds
  const auto end = static_cast<Index>(tokens.size());
  model_.evaluate(exec_, tokens, positions);
  for (Index first = end - count; first < end; first += most)
    visit(to_host(model_.evaluated_logits(exec_, first, std::min(most, end - first))));
}

template <class P>
std::vector<float> LoadedModel<P>::to_host(const Matrix<Compute<P>>& logits) const {
  return logits_to_host(exec_, logits, shape_.vocab_size, tensor_);
}

template <class P>
Index LoadedModel<P>::sequences_that_fit(Index sequences, Index length) const {
  const auto fits = [&](Index count) {
    return available_bytes_ == 0 ||
           weight_bytes() + static_cast<std::size_t>(model_.cache_bytes(cache_shape(count, length))) <=
               available_bytes_;
  };
  while (sequences > 0 && !fits(sequences))
    --sequences;
  return sequences;
}

template <class P>
void LoadedModel<P>::allocate_cache(Index sequences, Index length) {
  const CacheShape shape = cache_shape(sequences, length);
  require_memory(static_cast<std::size_t>(model_.cache_bytes(shape)), "lower --max-tokens or --batch-size");
  model_.plan_cache(shape);
  rows_ = shape.rows;
  cached_.assign(static_cast<std::size_t>(sequences), {});
}

// A text that has several new tokens is taken in alone, by pieces that follow from its own length, so that its bits
// depend on no other text; the others together.
template <class P>
std::vector<std::vector<float>> LoadedModel<P>::next_logits(const std::vector<TextSoFar>& texts) {
  std::vector<std::vector<float>> logits(texts.size());
  std::vector<std::size_t> text_of_row;  // index in `texts`, of each row of `together`
  std::vector<SequenceToken> together;
  const auto decode_together = [&] {
    const std::vector<float> rows = to_host(model_.decode(exec_, together, std::ssize(together)));
    for (std::size_t i = 0; i < text_of_row.size(); ++i) {
      const auto row = rows.begin() + static_cast<Index>(i) * shape_.vocab_size;
      logits[text_of_row[i]].assign(row, row + shape_.vocab_size);
    }
    text_of_row.clear();
    together.clear();
  };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto& [sequence, tokens] = texts[i];
    std::vector<TokenId>& cached = cached_.at(static_cast<std::size_t>(sequence));
    const bool goes_on = cached.size() < tokens.size() && std::equal(cached.begin(), cached.end(), tokens.begin());
    std::vector<SequenceToken> added;
    for (std::size_t t = goes_on ? cached.size() : 0; t < tokens.size(); ++t)
      added.push_back({tokens[t], sequence, static_cast<int>(t)});
    cached.assign(tokens.begin(), tokens.end());
    if (added.size() == 1) {
      text_of_row.push_back(i);
      together.push_back(added.front());
      if (std::ssize(together) == std::min(useful_sequences, rows_))
        decode_together();
      continue;
    }
    for (Index first = 0; first < std::ssize(added); first += rows_) {
      const Index count = std::min(rows_, std::ssize(added) - first);
      const bool is_last = first + count == std::ssize(added);
      const auto row = model_.decode(
          exec_, std::span(added).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
          is_last ? 1 : 0);
      if (is_last)
        logits[i] = to_host(row);
    }
  }
  if (!together.empty())
    decode_together();
  return logits;
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
