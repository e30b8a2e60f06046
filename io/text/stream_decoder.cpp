// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/stream_decoder.hpp"

#include <algorithm>

#include "core/printable_text.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// How many tokens wait for the rest of a character, which has at most four bytes. The text of more tokens is returned
// as it is, so that a model that writes broken characters only has an output, too.
constexpr std::size_t most_held_tokens = 8;
constexpr std::size_t most_kept_tokens = 256;

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::string StreamDecoder::take(bool all) {
  const std::string text = tokenizer_.decode(tokens_, skip_special_tokens_);
  if (!all && (unfinished_bytes(text) > 0 || text.ends_with(replacement_character)))
    return {};
  std::string piece = text.substr(common_prefix(text, text_));
  // Earlier tokens are dropped, unless the last tokens are only spaces: some decoders strip spaces at the beginning of
  // a text.
  const auto num_returned = static_cast<std::ptrdiff_t>(num_returned_);
  const std::vector<TokenId> last(tokens_.begin() + num_returned, tokens_.end());
  text_ = tokenizer_.decode(last, skip_special_tokens_);
  if (text_.find_first_not_of(' ') != std::string::npos || tokens_.size() > most_kept_tokens)
    tokens_ = last;
  else
    text_ = text;
  num_returned_ = tokens_.size();
  return piece;
}

std::string StreamDecoder::write(TokenId token) {
  tokens_.push_back(token);
  return take(tokens_.size() - num_returned_ > most_held_tokens);
}

std::string StreamDecoder::finish() { return tokens_.size() > num_returned_ ? take(true) : std::string(); }

}  // namespace espalier
