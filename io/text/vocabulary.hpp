// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Texts and ids of tokens, both ways. An id may have no text.
class Vocabulary {
 public:
  static constexpr Index max_tokens = Index{1} << 22;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;  // the views are of the elements of `texts_`, which stay where they are
  Vocabulary& operator=(Vocabulary&&) = default;

  /// @throws std::runtime_error for an id below 0 or beyond `max_tokens`, and for a text or an id that is there
  /// already
  void add(std::string text, TokenId id);

  /// -1 where there is none.
  TokenId find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
  }
  bool contains(TokenId id) const { return id >= 0 && id < size() && has_text_[static_cast<std::size_t>(id)]; }
  /// @pre contains(id)
  const std::string& text(TokenId id) const { return texts_[static_cast<std::size_t>(id)]; }
  Index size() const { return std::ssize(has_text_); }   ///< every id is below it
  Index num_tokens() const { return std::ssize(ids_); }  ///< with a text

 private:
  struct Texts {  // grows without moving what is in it
    std::string& operator[](std::size_t i) { return blocks[i / block][i % block]; }
    const std::string& operator[](std::size_t i) const { return blocks[i / block][i % block]; }
    static constexpr std::size_t block = 4096;
    std::vector<std::vector<std::string>> blocks;
  };

  Texts texts_;
  std::vector<bool> has_text_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

/// Sets the text of a token in a list of all texts by their ids, which grows as needed.
inline void set_text(std::vector<std::string>& texts, TokenId id, std::string text) {
  if (texts.size() <= static_cast<std::size_t>(id))
    texts.resize(static_cast<std::size_t>(id) + 1);
  texts[static_cast<std::size_t>(id)] = std::move(text);
}

}  // namespace espalier
