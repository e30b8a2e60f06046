// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/described_words.hpp"

#include <algorithm>
#include <cctype>

#include "planning/strings.hpp"

namespace espalier {
namespace {

// "NVIDIA-NeMo/Megatron-Bridge" is nvidia, nemo, megatron, bridge.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : lower_case(text)) {
    const bool is_of_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_of_word && !inside)
      words.emplace_back();
    if (is_of_word)
      words.back() += c;
    inside = is_of_word;
  }
  return words;
}

}  // namespace

DescribedWords::DescribedWords(std::string text) : text_(std::move(text)), words_(split_words(text_)) {}

bool DescribedWords::says(std::initializer_list<const char*> phrases) const {
  return std::any_of(phrases.begin(), phrases.end(), [&](const char* phrase) { return finds(phrase, false); });
}

bool DescribedWords::denies(std::initializer_list<const char*> phrases) const {
  return std::any_of(phrases.begin(), phrases.end(), [&](const char* phrase) { return finds(phrase, true); });
}

bool DescribedWords::quotes(std::string_view part) const { return contains(text_, part); }

bool DescribedWords::finds(const std::string& phrase, bool denied) const {
  const bool whole = phrase.ends_with(' ');
  const std::vector<std::string> wanted = split_words(phrase);
  for (std::size_t at = 0; at + wanted.size() <= words_.size(); ++at) {
    bool same = true;
    for (std::size_t i = 0; i < wanted.size() && same; ++i)
      same = i + 1 == wanted.size() && !whole ? words_[at + i].starts_with(wanted[i]) : words_[at + i] == wanted[i];
    if (same && is_denied(at, at + wanted.size()) == denied)
      return true;
  }
  return false;
}

// By the word before, by "w/o", or by the one behind.
bool DescribedWords::is_denied(std::size_t begin, std::size_t end) const {
  const auto is = [&](std::size_t at, std::initializer_list<const char*> any) {
    return at < words_.size() && std::ranges::find(any, words_[at]) != any.end();
  };
  return (begin >= 1 && is(begin - 1, {"no", "not", "without"})) ||
         (begin >= 2 && is(begin - 2, {"w"}) && is(begin - 1, {"o"})) || is(end, {"off", "false", "disabled"});
}

}  // namespace espalier
