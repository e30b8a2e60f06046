// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/vocabulary.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "core/printable_text.hpp"

namespace espalier {

void Vocabulary::add(std::string text, TokenId id) {
  if (id < 0 || id >= max_tokens)
    throw std::runtime_error(fmt::format("the id {} of a token, wanted 0 to {}", id, max_tokens - 1));
  if (contains(id))
    throw std::runtime_error(fmt::format("two tokens have the id {}", id));
  const auto at = static_cast<std::size_t>(id);
  while (texts_.blocks.size() * Texts::block <= at)
    texts_.blocks.emplace_back(Texts::block);
  if (has_text_.size() <= at)
    has_text_.resize(at + 1);
  if (ids_.contains(text))
    throw std::runtime_error(fmt::format("the token {:.80} has two ids", printable_line(text)));
  texts_[at] = std::move(text);
  has_text_[at] = true;
  ids_.emplace(texts_[at], id);
}

}  // namespace espalier
