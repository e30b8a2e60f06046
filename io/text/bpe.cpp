// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/bpe.hpp"

#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

#include "core/printable_text.hpp"
#include "io/text/byte_level_alphabet.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

std::uint64_t next_bpe_id() {
  static std::atomic<std::uint64_t> next = 1;
  return next++;
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const Options& options)
    : vocabulary_(std::move(vocabulary)), options_(options), id_(next_bpe_id()) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_tokens_[byte] = options.bytes ? vocabulary_.find({&text, 1}) : -1;
    fallback_tokens_[byte] = options.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : -1;
  }
  if (options.bytes)
    return;
  character_tokens_.assign(0x110000, -1);
  for (TokenId id = 0; id < vocabulary_.size(); ++id)
    if (const std::string_view text = vocabulary_.contains(id) ? vocabulary_.text(id) : std::string_view();
        !text.empty() && character_bytes(text) == text.size())
      character_tokens_[code_point(text)] = id;
}

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Pair>& merges, const Options& options)
    : Bpe(std::move(vocabulary), options) {
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const TokenId merged = vocabulary_.find(vocabulary_.text(left) + vocabulary_.text(right));
    if (merged < 0)
      throw std::runtime_error(fmt::format("merge {}: {:.60} and {:.60} together are not a token", rank,
                                           printable_line(vocabulary_.text(left)),
                                           printable_line(vocabulary_.text(right))));
    merges_.insert(left, right, {rank++, merged});
  }
}

Bpe Bpe::of_ranks(Vocabulary vocabulary, bool ignore_merges) {
  Bpe bpe(std::move(vocabulary), {.bytes = true, .ignore_merges = ignore_merges});
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (bpe.byte_tokens_[byte] < 0)
      throw std::runtime_error(fmt::format("no token of the byte 0x{:02X}", byte));
  const Vocabulary& tokens = bpe.vocabulary_;
  // Twice the same walk: how many pairs there are, and which.
  const auto for_each_pair = [&](const auto& visit) {
    for (TokenId id = 0; id < tokens.size(); ++id) {
      const std::string_view text = tokens.contains(id) ? tokens.text(id) : std::string_view();
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        const TokenId left = tokens.find(text.substr(0, cut));
        const TokenId right = left < 0 ? -1 : tokens.find(text.substr(cut));
        if (right >= 0)
          visit(left, right, id);
      }
    }
  };
  std::size_t num_pairs = 0;
  for_each_pair([&](TokenId, TokenId, TokenId) { ++num_pairs; });
  bpe.merges_.reserve(num_pairs);
  for_each_pair([&](TokenId left, TokenId right, TokenId id) {
    bpe.merges_.insert(left, right, {static_cast<std::uint32_t>(id), id});
  });
  return bpe;
}

void Bpe::fall_back(std::string_view bytes, std::vector<TokenId>& tokens, bool& unknown_before) const {
  bool all = options_.byte_fallback;
  for (const char byte : bytes)
    all = all && fallback_tokens_[static_cast<unsigned char>(byte)] >= 0;
  if (all) {
    for (const char byte : bytes)
      tokens.push_back(fallback_tokens_[static_cast<unsigned char>(byte)]);
  } else if (options_.unknown >= 0) {
    if (!(unknown_before && options_.fuse_unknown))
      tokens.push_back(options_.unknown);
    unknown_before = true;
  }
}

void Bpe::begin_with_bytes(std::string_view word, std::vector<TokenId>& tokens) const {
  bool unknown_before = false;
  for (const char byte : word) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(byte)];
    if (token >= 0) {
      tokens.push_back(token);
      unknown_before = false;
    } else {
      fall_back(byte_level_alphabet()[static_cast<unsigned char>(byte)], tokens, unknown_before);
    }
  }
}

void Bpe::begin_with_characters(std::string_view word, std::vector<TokenId>& tokens) const {
  bool unknown_before = false;
  while (!word.empty()) {
    const std::size_t size = character_bytes(word);
    const TokenId token = character_tokens_[code_point(word)];
    if (token >= 0) {
      tokens.push_back(token);
      unknown_before = false;
    } else {
      fall_back(word.substr(0, size), tokens, unknown_before);
    }
    word.remove_prefix(size);
  }
}

void Bpe::encode_uncached(std::string_view word, std::vector<TokenId>& tokens) const {
  if (options_.ignore_merges) {
    if (const TokenId token = vocabulary_.find(word); token >= 0) {
      tokens.push_back(token);
      return;
    }
  }
  const std::size_t first = tokens.size();
  if (options_.bytes)
    begin_with_bytes(word, tokens);
  else
    begin_with_characters(word, tokens);
  merge_tokens(tokens, first, merges_);
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& tokens) const {
  static thread_local WordCache cache;
  if (!WordCache::may_hold(word))
    return encode_uncached(word, tokens);
  if (const std::span<const TokenId> known = cache.find(word, id_); !known.empty()) {
    tokens.insert(tokens.end(), known.begin(), known.end());
    return;
  }
  const std::size_t first = tokens.size();
  encode_uncached(word, tokens);
  cache.insert(word, std::span(tokens).subspan(first));
}

bool Bpe::never_merges_into(std::string_view mark) const {
  if (options_.bytes || options_.ignore_merges || vocabulary_.find(mark) < 0)
    return false;
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view text = vocabulary_.contains(id) ? vocabulary_.text(id) : std::string_view();
    for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1))
      if (at > 0 && !text.substr(0, at).ends_with(mark))
        return false;
  }
  return true;
}

}  // namespace espalier
