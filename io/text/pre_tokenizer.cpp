// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/pre_tokenizer.hpp"

#include <algorithm>
#include <deque>

#include "io/text/utf8.hpp"

namespace espalier {
namespace {

using Words = std::vector<std::string_view>;

struct SplitPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Calls `visit` with the matches of the pattern and with the parts between them, in order.
void for_each_part(const SplitStep& step, std::string_view text, const auto& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Regex::Match match = step.pattern.find(text, at);
    if (match.begin > at)
      visit(SplitPart{at, match.begin, step.invert});
    if (match.end > match.begin)
      visit(SplitPart{match.begin, match.end, !step.invert});
    at = match.end;
  }
}

// Replaces neighbouring parts that become one word by one part, which spans them all.
void merge_parts(std::vector<SplitPart>& parts, SplitBehavior behavior) {
  std::vector<SplitPart> merged;
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards)
    std::ranges::reverse(parts);
  bool previous = false;
  for (const SplitPart& part : parts) {
    const bool joins = behavior == SplitBehavior::contiguous ? part.is_match == previous : part.is_match && !previous;
    if (joins && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, part.begin);
      merged.back().end = std::max(merged.back().end, part.end);
    } else {
      merged.push_back(part);
    }
    previous = part.is_match;
  }
  if (backwards)
    std::ranges::reverse(merged);
  parts = std::move(merged);
}

void split_word(const SplitStep& step, std::string_view text, Words& words) {
  const auto add_word = [&](const SplitPart& part) { words.push_back(text.substr(part.begin, part.end - part.begin)); };
  if (step.behavior == SplitBehavior::isolated) {
    for_each_part(step, text, add_word);
  } else if (step.behavior == SplitBehavior::removed) {
    for_each_part(step, text, [&](const SplitPart& part) {
      if (!part.is_match)
        add_word(part);
    });
  } else {
    std::vector<SplitPart> parts;
    for_each_part(step, text, [&](const SplitPart& part) { parts.push_back(part); });
    merge_parts(parts, step.behavior);
    std::ranges::for_each(parts, add_word);
  }
}

void split_before_marks(std::string_view text, std::string_view mark, Words& words) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(mark, text.starts_with(mark) ? mark.size() : 0), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

// Owns the texts that a step has changed; words are views of them.
using WordTexts = std::deque<std::string>;

void apply_step(const SplitStep& step, const Words& from, bool, WordTexts&, Words& words) {
  for (const std::string_view word : from)
    split_word(step, word, words);
}

void apply_step(const MetaspaceStep& step, const Words& from, bool is_begin, WordTexts& texts, Words& words) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::string text;
    text.reserve(from[i].size() + from[i].size() / 2);
    for (const char c : from[i]) {
      if (c == ' ')
        text += step.mark;
      else
        text += c;
    }
    const bool prepends = step.prepend == MetaspaceStep::Prepend::always ||
                          (step.prepend == MetaspaceStep::Prepend::first && is_begin && i == 0);
    if (prepends && !text.starts_with(step.mark))
      text.insert(0, step.mark);
    texts.push_back(std::move(text));
    if (step.split)
      split_before_marks(texts.back(), step.mark, words);
    else
      words.emplace_back(texts.back());
  }
}

void apply_step(const PrefixSpaceStep&, const Words& from, bool, WordTexts& texts, Words& words) {
  for (const std::string_view word : from) {
    if (word.starts_with(' ')) {
      words.push_back(word);
    } else {
      texts.push_back(' ' + std::string(word));
      words.emplace_back(texts.back());
    }
  }
}

}  // namespace

void PreTokenizer::for_each_word(std::string_view text, bool is_begin,
                                 const std::function<void(std::string_view)>& visit) const {
  if (text.empty())
    return;
  Words words = {text};
  WordTexts texts;
  for (const PreTokenizerStep& step : steps_) {
    Words next;
    std::visit([&](const auto& kind) { apply_step(kind, words, is_begin, texts, next); }, step);
    words = std::move(next);
  }
  for (const std::string_view word : words)
    visit(word);
}

}  // namespace espalier
