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
  bool special = false;      ///< left out of texts on request
  bool normalized = false;   ///< is found in the normalized text
  bool left_strip = false;   ///< takes the white space before it
  bool right_strip = false;  ///< and after it
  bool single_word = false;  ///< is none beside a letter, a digit or _
};

/// Tokens by their texts: of several at one place the longest.
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
  std::vector<bool> begins_ = std::vector<bool>(256);  // may a token begin with the byte?
};

class AddedTokens {
 public:
  /// @param text what is found: the token's text, normalized where the token is
  void add(AddedToken token, std::string text);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::string_view text) const;  ///< null where there is none

  /// Calls `visit_text` with the parts of a text between tokens, and where they begin, and `visit_token` with the
  /// tokens, in order.
  /// @param normalized whether those are looked for that are found in normalized text, or the others
  void split(std::string_view text, bool normalized,
             const std::function<void(std::string_view part, std::size_t begin)>& visit_text,
             const std::function<void(const AddedToken&)>& visit_token) const;

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> by_text_;
  TokenTrie tries_[2];  // of the raw text, of the normalized one
};

}  // namespace espalier
