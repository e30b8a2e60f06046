// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/stream_decoder.hpp"

#include <algorithm>

#include "core/printable_text.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// Tokens that may wait for the rest of a character of four bytes. A model that makes nothing but broken ones is read.
constexpr std::size_t most_held_tokens = 8;

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::string StreamDecoder::take(bool all) {
  const std::span<const TokenId> tokens(tokens_);
  const std::string before = tokenizer_.decode(tokens.first(num_returned_), skip_special_tokens_);
  std::string text = tokenizer_.decode(tokens, skip_special_tokens_);
  if (!all && (unfinished_bytes(text) > 0 || text.ends_with(replacement_character)))
    return {};
  text.erase(0, common_prefix(text, before));
  if (text.empty() && !all)
    return {};
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(num_returned_));
  num_returned_ = tokens_.size();
  return text;
}

std::string StreamDecoder::write(TokenId token) {
  tokens_.push_back(token);
  return take(tokens_.size() - num_returned_ > most_held_tokens);
}

std::string StreamDecoder::finish() { return tokens_.size() > num_returned_ ? take(true) : std::string(); }

}  // namespace espalier
