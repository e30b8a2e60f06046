// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"

namespace espalier {

Index num_parameters(const GptConfig& config) {
  const Index c = config.hidden_size;
  const Index f = config.ffn_hidden_size;
  const Index norm = 2 * c;
  const Index attention = 3 * c * c + 3 * c + c * c + c;
  const Index mlp = 2 * c * f + f + c;
  return config.vocab_size * c + config.max_sequence_length * c + config.num_layers * (2 * norm + attention + mlp) +
         norm;
}

double forward_flops_per_token(const GptConfig& config, Index sequence_length) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.ffn_hidden_size);
  const double products =
      static_cast<double>(config.num_layers) * (4 * c * c + 2 * c * f) + static_cast<double>(config.vocab_size) * c;
  const double scores = static_cast<double>(config.num_layers) * 2 * c * 0.5 * static_cast<double>(sequence_length + 1);
  return 2 * (products + scores);
}

double training_flops_per_token(const GptConfig& config, Index sequence_length) {
  return 3 * forward_flops_per_token(config, sequence_length);
}

}  // namespace espalier
