// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "training/config/run_config.hpp"

namespace espalier::test {

/// A config to predict from, which nothing runs: a model of this shape, steps of 8 sequences one at a time, and what
/// `more` says.
inline RunConfig shape_config(const ModelConfig& shape, int ranks, const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys{fmt::format("model.vocab_size={}", shape.vocab_size),
                                fmt::format("model.max_sequence_length={}", shape.max_sequence_length),
                                fmt::format("model.num_layers={}", shape.num_layers),
                                fmt::format("model.hidden_size={}", shape.hidden_size),
                                fmt::format("model.num_heads={}", shape.num_heads),
                                fmt::format("model.ffn_hidden_size={}", shape.ffn_hidden_size),
                                "batch.global_batch_size=8",
                                "batch.micro_batch_size=1",
                                "data.train=[\"none.bin\"]",
                                "run.steps=1"};
  keys.insert(keys.end(), more.begin(), more.end());
  return parse_run_config("", "test", keys, ranks);
}

}  // namespace espalier::test
