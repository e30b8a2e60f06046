// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Text to token ids and back. The name is written into token files, so that a model cannot meet another's
/// tokens.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  virtual Index vocab_size() const = 0;

  /// Appends the tokens of `text`.
  virtual void encode(std::string_view text, std::vector<TokenId>& tokens) const = 0;

  /// @throws Error (data) for an id outside the vocabulary.
  virtual std::string decode(std::span<const TokenId> tokens) const = 0;
};

/// One token a byte, 256 ids: no vocabulary file, any text, any language.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  Index vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<TokenId>& tokens) const override;
  std::string decode(std::span<const TokenId> tokens) const override;
};

/// The tokenizer of that name. @throws Error (usage) for an unknown one.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace espalier
