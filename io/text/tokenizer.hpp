// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

struct EncodeOptions {
  /// What the tokenizer puts around a text (begin of text, end of text). Special tokens that are written in the text
  /// are found either way, but for the control pieces of SentencePiece, which are made of plain pieces there.
  bool add_special_tokens = false;
  // Of a text that comes in parts: the part that it begins with, that it ends with.
  bool is_begin = true;
  bool is_end = true;
};

/// Text to token ids and back. Several threads may use one at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// It is written into token files and checkpoints, so that a model cannot meet another's tokens: "byte", or what
  /// fingerprint_name() makes of the contents. At most 63 bytes.
  virtual std::string name() const = 0;

  /// Every id is below it.
  virtual Index vocab_size() const = 0;

  /// Appends the tokens of `text`. What is not UTF-8 is read as U+FFFD, but by the byte tokenizer.
  /// @throws Error (data) where the tokenizer's pattern gives up on the text
  virtual void encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions options = {}) const = 0;

  /// The text of all tokens together; StreamDecoder has that of one after the other.
  /// @throws Error (data) for an id that no token has.
  virtual std::string decode(std::span<const TokenId> tokens, bool skip_special_tokens = false) const = 0;

  /// The id of a special token ("</s>"): an added one, a control piece, or one that a user has defined; -1 where none
  /// of these has that text.
  virtual TokenId special_token(std::string_view text) const = 0;

  /// May a text be cut anywhere, and its parts encoded one by one?
  virtual bool can_split_anywhere() const { return false; }
};

/// The file itself, or that of a directory: tokenizer.json, tokenizer.model (SentencePiece or tiktoken), or the only
/// *.model or *.tiktoken. @throws Error (usage) where there is none, or several
Path tokenizer_file(const std::string& name);

/// "byte", or the path of a file or of a directory with one.
/// @throws Error: (usage) where there is none, (data) for a file that is none, or one with a part that is not
/// supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name);

/// Has the directory tokenizer.json or tokenizer.model, as those of models have?
bool has_tokenizer(const Path& directory);

/// "bpe-50257-0123456789abcdef": the kind, the vocabulary's size, and the hash of what decides about the tokens.
std::string fingerprint_name(const std::string& kind, Index vocab_size, std::string_view contents);

/// @param position from 0  @throws Error (data): an id that no token has
[[noreturn]] void refuse_token(TokenId token, std::size_t position, const std::string& tokenizer, Index vocab_size);

}  // namespace espalier
