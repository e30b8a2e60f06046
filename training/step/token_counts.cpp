// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/token_counts.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/ops/attention_shape.hpp"
#include "parallel/collectives/collectives.hpp"

namespace espalier {
namespace {

double keys_of_joined(const Batch& batch, Index window) {
  return static_cast<double>(batch.batch_size) * seen_keys(batch.sequence_length, window);
}

// Summed over the queries of the batch.
double keys_of_documents(const Batch& batch, Index window) {
  if (batch.positions.empty())
    return keys_of_joined(batch, window);
  Index seen = 0;
  for (const int position : batch.positions)
    seen += window > 0 ? std::min<Index>(position + 1, window) : position + 1;
  return static_cast<double>(seen);
}

}  // namespace

Index count_valid(const Batch& batch) {
  return std::ranges::count_if(batch.targets, [](TokenId target) { return target >= 0; });
}

void require_valid(Index valid_tokens) {
  if (valid_tokens == 0)
    throw Error(ExitCode::data, {.what = "there is no loss: no token of the files is a target that counts",
                                 .got = "documents of one token, or a loss mask without a 1",
                                 .wanted = "at least one token that counts",
                                 .todo = "look at the files with `espalier data inspect`"});
}

TokenCounts count_tokens(const std::vector<Batch>& batches, const ModelConfig& model, const Communicator& replicas) {
  const auto of_layers = [&](const auto& keys, const Batch& batch) {
    return model.sum_over_windows([&](Index window) { return keys(batch, window); });
  };
  std::array<double, 3> counts{};  // valid tokens, seen keys, those of joined documents
  for (const Batch& batch : batches) {
    counts[0] += static_cast<double>(count_valid(batch));
    counts[1] += of_layers(keys_of_documents, batch);
    counts[2] += of_layers(keys_of_joined, batch);
  }
  all_reduce(replicas, std::span<double>(counts));
  return {static_cast<Index>(counts[0]), counts[1] / counts[2]};
}

}  // namespace espalier
