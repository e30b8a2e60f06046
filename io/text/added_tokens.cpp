// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/added_tokens.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "io/text/normalizer.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

bool is_word_character(std::uint32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return point == 0x200C || point == 0x200D || (point >= 0x24B6 && point <= 0x24E9);
  }
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !is_word_character(code_point(last_character(text.substr(0, begin))))) &&
         (end == text.size() || !is_word_character(code_point(text.substr(end))));
}

std::size_t left_of_white_space(std::string_view text, std::size_t begin) {
  while (begin > 0) {
    const std::string_view last = last_character(text.substr(0, begin));
    if (!is_white_space(code_point(last)))
      break;
    begin -= last.size();
  }
  return begin;
}

std::size_t right_of_white_space(std::string_view text, std::size_t end) {
  while (end < text.size() && is_white_space(code_point(text.substr(end))))
    end += character_bytes(text.substr(end));
  return end;
}

}  // namespace

void TokenTrie::add(std::string_view text, std::size_t value) {
  std::size_t node = 0;
  begins_[static_cast<unsigned char>(text.front())] = true;
  for (const char c : text) {
    std::size_t next = child(node, c);
    if (next == none) {
      next = nodes_.size();
      nodes_[node].children.emplace_back(c, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[node].value = value;
}

std::size_t TokenTrie::child(std::size_t node, char c) const {
  for (const auto& [label, next] : nodes_[node].children)
    if (label == c)
      return next;
  return none;
}

TokenTrie::Match TokenTrie::find(std::string_view text, std::size_t from) const {
  if (nodes_.size() == 1)
    return {};
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])])
      continue;
    Match longest;
    std::size_t node = 0;
    for (std::size_t end = begin; end < text.size() && (node = child(node, text[end])) != none; ++end)
      if (nodes_[node].value != none)
        longest = {begin, end + 1, nodes_[node].value};
    if (longest.end > 0)
      return longest;
  }
  return {};
}

void AddedTokens::add(AddedToken token, std::string text) {
  if (!text.empty())
    tries_[token.normalized ? 1 : 0].add(text, tokens_.size());
  by_text_.emplace(token.text, tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::find(std::string_view text) const {
  const auto found = by_text_.find(std::string(text));
  return found == by_text_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(std::string_view text, bool normalized,
                        const std::function<void(std::string_view part, std::size_t begin)>& visit_text,
                        const std::function<void(const AddedToken&)>& visit_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    TokenTrie::Match match = tries_[normalized ? 1 : 0].find(text, at);
    if (match.begin == std::string_view::npos)
      break;
    at = match.end;
    const AddedToken& token = tokens_[match.value];
    if (token.single_word && !is_single_word(text, match.begin, match.end))
      continue;
    if (token.left_strip)
      match.begin = std::max(done, left_of_white_space(text, match.begin));
    if (token.right_strip)
      match.end = right_of_white_space(text, match.end);
    if (match.begin > done)
      visit_text(text.substr(done, match.begin - done), done);
    visit_token(token);
    done = match.end;
  }
  if (done < text.size())
    visit_text(text.substr(done), done);
}

}  // namespace espalier
