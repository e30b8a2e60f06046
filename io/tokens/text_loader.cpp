// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/text_loader.hpp"

#include <algorithm>
#include <utility>

namespace espalier {

TextLoader::TextLoader(std::vector<TokenId> tokens, const LoaderOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  ESPALIER_ASSERT(tokens_.size() > 1, "a text needs a token and one that follows");
}

Index TextLoader::num_samples() const {
  return (valid_tokens() + options_.sequence_length - 1) / options_.sequence_length;
}

Index TextLoader::num_batches() const {
  const Index together = options_.micro_batch_size * options_.size;
  return (num_samples() + together - 1) / together;
}

Batch TextLoader::batch(Index index) const {
  const Index length = options_.sequence_length;
  const auto size = static_cast<std::size_t>(options_.micro_batch_size * length);
  Batch batch;
  batch.batch_size = options_.micro_batch_size;
  batch.sequence_length = length;
  batch.first_sample = (index * options_.size + options_.rank) * options_.micro_batch_size;
  batch.inputs.assign(size, 0);
  batch.targets.assign(size, -1);
  for (Index row = 0; row < options_.micro_batch_size && batch.first_sample + row < num_samples(); ++row) {
    const Index first_target = (batch.first_sample + row) * length;
    const Index begin = std::clamp<Index>(valid_tokens() - length, 0, first_target);
    for (Index t = 0; t < length && begin + t < valid_tokens(); ++t) {
      const auto from = static_cast<std::size_t>(begin + t);
      const auto to = static_cast<std::size_t>(row * length + t);
      batch.inputs[to] = tokens_[from];
      if (begin + t >= first_target)
        batch.targets[to] = tokens_[from + 1];
    }
  }
  return batch;
}

}  // namespace espalier
