// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
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

/// Ends a text that comes in pieces, as soon as one of some texts is complete in it: where that begins, the longest
/// where several end together. What may be the beginning of one is held back until it is known.
class StopTexts {
 public:
  /// @pre none of them is empty
  explicit StopTexts(std::vector<std::string> texts);

  /// The next piece. @returns what is known to come before any of the texts
  std::string write(std::string_view piece);
  /// Has one of them come? Then nothing follows.
  bool found() const { return found_; }
  /// There are no more pieces. @returns what was held back
  std::string finish();

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace espalier
