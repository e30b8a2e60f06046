// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// A token that is found in a text before the text is cut into words.
struct AddedToken {
  std::string text;
  TokenId id = -1;
  bool special = false;      ///< decoding leaves it out on request
  bool normalized = false;   ///< is looked for in the normalized text, else in the raw text
  bool left_strip = false;   ///< replaces the white space before its text, too
  bool right_strip = false;  ///< replaces the white space behind its text, too
  bool single_word = false;  ///< is not found where a letter, a digit or _ stands beside its text
};

/// Finds the texts of tokens in a text. Where several begin at one place, the longest is found.
class TokenTrie {
 public:
  void add(std::string_view text, std::size_t value);

  struct Match {
    std::size_t begin = std::string_view::npos;
    std::size_t end = 0;
    std::size_t value = 0;
  };
  /// The first match from `from` on; begin is npos where there is none.
  Match find(std::string_view text, std::size_t from) const;

 private:
  static constexpr std::size_t none = std::string_view::npos;
  struct Node {
    std::vector<std::pair<char, std::size_t>> children;
    std::size_t value = none;
  };
  std::size_t child(std::size_t node, char c) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> begins_ = std::vector<bool>(256);  // by byte: does the text of a token begin with it?
};

class AddedTokens {
 public:
  /// @param text what is found: the token's text, normalized where the token is
  void add(AddedToken token, std::string text);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::string_view text) const;  ///< null where there is none

  /// Calls `visit_token` with the tokens that are found in a text, and `visit_text` with the parts between them and
  /// their offsets, in order.
  /// @param normalized looks for the tokens of normalized text, else for those of raw text
  void split(std::string_view text, bool normalized,
             const std::function<void(std::string_view part, std::size_t begin)>& visit_text,
             const std::function<void(const AddedToken&)>& visit_token) const;

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> by_text_;
  TokenTrie tries_[2];  // [0] has the tokens of raw text, [1] those of normalized text
};

}  // namespace espalier
