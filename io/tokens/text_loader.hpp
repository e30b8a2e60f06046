// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/tokens/token_loader.hpp"

namespace espalier {

/// The tokens of one text in windows of T: each token but the first is a target once. The last window ends with the
/// text and leaves out the targets that it shares with the one before; a text that is shorter than a window is padded.
class TextLoader {
 public:
  /// Takes micro_batch_size, sequence_length, rank and size of the options. @pre at least two tokens
  TextLoader(std::vector<TokenId> tokens, const LoaderOptions& options);

  Index num_samples() const;
  Index num_batches() const;  ///< the same on every replica
  Index valid_tokens() const { return std::ssize(tokens_) - 1; }
  Batch batch(Index index) const;

 private:
  std::vector<TokenId> tokens_;
  LoaderOptions options_;
};

}  // namespace espalier
