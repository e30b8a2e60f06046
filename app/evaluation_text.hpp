// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// A plain text as tokens, for `espalier evaluate --text`.
struct EvaluationText {
  std::vector<TokenId> tokens;
  Index bytes =
      0;  ///< of the text behind the first token, which nothing predicts; of all if that stands before the text
  std::string tokenizer;
};

/// @throws Error (data) where the file cannot be read, or has fewer than two tokens or one beyond `vocab_size`
EvaluationText read_evaluation_text(const std::string& file, const Tokenizer& tokenizer, Index vocab_size);

}  // namespace espalier
