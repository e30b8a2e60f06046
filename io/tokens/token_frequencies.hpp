// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/tokens/token_file.hpp"

namespace espalier {

/// What can be said of token files without a model.
struct TokenFrequencies {
  Index num_tokens = 0;     ///< in all files
  double unigram_loss = 0;  ///< nats a token of a model that knows how often each token occurs, and nothing else
};

/// From a million tokens, in stretches all over the files (a correction for those that are too rare to be seen is
/// added): to about 0.01.
TokenFrequencies sample_frequencies(const std::vector<std::string>& files);

}  // namespace espalier
