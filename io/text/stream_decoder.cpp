// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/stream_decoder.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/printable_text.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// How many tokens wait for the rest of a character, which has at most four bytes. The text of more tokens is returned
// as it is, so that a model that writes broken characters only has an output, too.
constexpr std::size_t max_held_tokens = 8;
constexpr std::size_t max_kept_tokens = 256;

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
  if (text_.find_first_not_of(' ') != std::string::npos || tokens_.size() > max_kept_tokens)
    tokens_ = last;
  else
    text_ = text;
  num_returned_ = tokens_.size();
  return piece;
}

std::string StreamDecoder::write(TokenId token) {
  tokens_.push_back(token);
  return take(tokens_.size() - num_returned_ > max_held_tokens);
}

std::string StreamDecoder::finish() { return tokens_.size() > num_returned_ ? take(true) : std::string(); }

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  ESPALIER_ASSERT(std::ranges::none_of(texts_, &std::string::empty), "an empty text stands everywhere");
}

std::string StopTexts::write(std::string_view piece) {
  if (found_)
    return {};
  held_ += piece;
  std::size_t end = std::string::npos;
  std::size_t begin = 0;
  for (const std::string& text : texts_)
    if (const std::size_t at = held_.find(text); at != std::string::npos)
      if (at + text.size() < end || (at + text.size() == end && at < begin)) {
        end = at + text.size();
        begin = at;
      }
  if (end != std::string::npos) {
    found_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  std::size_t kept = 0;  // bytes at the end that may be the beginning of a text, the longest such
  for (const std::string& text : texts_)
    for (std::size_t size = std::min(text.size() - 1, held_.size()); size > kept; --size)
      if (held_.ends_with(std::string_view(text).substr(0, size)))
        kept = size;
  std::string known = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return known;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace espalier
