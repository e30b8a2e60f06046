// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/bpe_tokenizer.hpp"

#include <algorithm>

#include "io/text/byte_level_alphabet.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581, of SentencePiece

// Where a mark follows another character; the end of the text where none does.
std::size_t marked_word_end(std::string_view text) {
  std::size_t begin = 0;
  while (text.substr(begin).starts_with(space_mark))
    begin += space_mark.size();
  return std::min(text.find(space_mark, begin), text.size());
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : parts_(std::move(parts)),
      is_special_(parts_.texts.size()),
      cuts_at_marks_(parts_.bpe.never_merges_into(space_mark)) {
  for (const AddedToken& token : parts_.added_tokens.tokens())
    is_special_[static_cast<std::size_t>(token.id)] = token.special;
  name_ = fingerprint_name(parts_.kind, vocab_size(), parts_.contents);
  parts_.contents.clear();
  parts_.contents.shrink_to_fit();
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions options) const {
  if (options.add_special_tokens && options.is_begin)
    tokens.insert(tokens.end(), parts_.prefix.begin(), parts_.prefix.end());
  std::string replaced;
  if (valid_utf8_bytes(text) != text.size()) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
  }
  parts_.added_tokens.split(
      text, false,
      [&](std::string_view part, std::size_t begin) { encode_part(part, options.is_begin && begin == 0, tokens); },
      [&](const AddedToken& token) { tokens.push_back(token.id); });
  if (options.add_special_tokens && options.is_end)
    tokens.insert(tokens.end(), parts_.suffix.begin(), parts_.suffix.end());
}

void BpeTokenizer::encode_part(std::string_view text, bool is_begin, std::vector<TokenId>& tokens) const {
  std::string normalized;
  if (!parts_.normalizer.empty()) {
    is_begin = is_begin && parts_.normalizer.keeps_begin(text);
    normalized = parts_.normalizer.apply(std::string(text));
    text = normalized;
  }
  parts_.added_tokens.split(
      text, true, [&](std::string_view part, std::size_t begin) { encode_words(part, is_begin && begin == 0, tokens); },
      [&](const AddedToken& token) { tokens.push_back(token.id); });
}

void BpeTokenizer::encode_words(std::string_view text, bool is_begin, std::vector<TokenId>& tokens) const {
  parts_.pre_tokenizer.for_each_word(text, is_begin, [&](std::string_view word) {
    while (cuts_at_marks_ && !word.empty()) {
      const std::size_t end = marked_word_end(word);
      parts_.bpe.encode_word(word.substr(0, end), tokens);
      word.remove_prefix(end);
    }
    if (!word.empty())
      parts_.bpe.encode_word(word, tokens);
  });
}

std::string BpeTokenizer::decode(std::span<const TokenId> tokens, bool skip_special_tokens) const {
  std::string bytes;
  std::vector<std::string> texts;
  const bool joins = parts_.decoder.is_byte_level();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size())
      refuse_token(tokens[i], i, name_, vocab_size());
    const auto id = static_cast<std::size_t>(tokens[i]);
    if (skip_special_tokens && is_special_[id])
      continue;
    if (joins)
      bytes += parts_.texts[id];
    else
      texts.push_back(parts_.texts[id]);
  }
  if (joins)
    return replace_invalid_utf8(bytes);
  if (!parts_.decoder.empty())
    return parts_.decoder.decode(std::move(texts));
  for (std::size_t i = 0; i < texts.size(); ++i)
    bytes += (i == 0 ? "" : " ") + texts[i];
  return bytes;
}

TokenId BpeTokenizer::special_token(std::string_view text) const {
  const AddedToken* const token = parts_.added_tokens.find(text);
  return token == nullptr ? -1 : token->id;
}

}  // namespace espalier
