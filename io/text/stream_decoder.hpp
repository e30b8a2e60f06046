// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// The text of tokens that come one after the other. A character that needs several tokens comes with the last of them.
/// All pieces together are what decode() makes of all tokens together.
class StreamDecoder {
 public:
  /// @param tokenizer outlives this
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  /// The next token. @returns what is known of the text after what was returned before
  std::string write(TokenId token);
  /// There are no more tokens. @returns what was held back
  std::string finish();

 private:
  /// The text that is new. @param all also an incomplete character
  std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  // First come tokens whose text was returned: they decide whether the decoder keeps a space behind them. Then come
  // tokens whose text was not returned yet.
  std::vector<TokenId> tokens_;
  std::size_t num_returned_ = 0;  // how many of tokens_ had their text returned
  std::string text_;              // the text of the first num_returned_ tokens
};

}  // namespace espalier
