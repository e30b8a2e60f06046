// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/generated_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// The character that a byte of UTF-8 belongs to.
std::string character_at(const std::string& text, std::size_t at) {
  const auto continues = [&](std::size_t i) { return continues_character(text[i]); };
  std::size_t begin = at;
  while (begin > 0 && continues(begin))
    --begin;
  std::size_t end = at + 1;
  while (end < text.size() && continues(end))
    ++end;
  return text.substr(begin, end - begin);
}

}  // namespace

GeneratedText::GeneratedText(const std::string& prompt, const GenerationRules& rules, const Tokenizer& tokenizer)
    : rules_(rules),
      tokenizer_(tokenizer),
      random_(rules.seed, "generate"),
      decoder_(tokenizer),
      stop_(rules.stop_texts),
      pending_(rules.is_chat ? "" : prompt) {
  tokenizer.encode(prompt.empty() ? "\n" : prompt, tokens_, {.add_special_tokens = !rules.is_chat});
  for (const TokenId token : tokens_)  // the text of what follows may depend on them
    decoder_.write(token);
}

std::span<const TokenId> GeneratedText::window(Index longest) const {
  return std::span(tokens_).last(std::min(tokens_.size(), static_cast<std::size_t>(longest)));
}

TokenId GeneratedText::draw(const std::vector<float>& logits) const {
  const auto num_texts = static_cast<std::size_t>(tokenizer_.vocab_size());  // a padded vocabulary has more ids
  const auto end = logits.begin() + static_cast<std::ptrdiff_t>(std::min(logits.size(), num_texts));
  const double u = random_.uniform(static_cast<std::uint64_t>(num_drawn_));
  return sample(candidates({logits.begin(), end}, tokens_, rules_.sampling, u), u);
}

void GeneratedText::add(TokenId token) {
  const bool stops = std::ranges::find(rules_.stop_tokens, token) != rules_.stop_tokens.end();
  if (!stops) {
    tokens_.push_back(token);
    pending_ += stop_.write(decoder_.write(token));
  }
  is_complete_ = stops || stop_.found() || ++num_drawn_ == rules_.max_tokens;
  if (is_complete_)
    pending_ += stop_.write(decoder_.finish()) + stop_.finish();
}

std::string GeneratedText::take() { return std::exchange(pending_, {}); }

void require_vocabulary(const std::string& prompt, const std::string& name, const Tokenizer& tokenizer,
                        Index vocab_size) {
  std::vector<TokenId> tokens;
  tokenizer.encode(prompt, tokens, {.add_special_tokens = true});
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= vocab_size)
      throw Error(ExitCode::usage,
                  {.what = "the prompt has a character that the model does not know",
                   .where = fmt::format("{}, token {} of {}", name, i + 1, tokens.size()),
                   .got = fmt::format("id {} in \"{}\"", tokens[i],
                                      tokenizer.name() == "byte" ? character_at(prompt, i)
                                                                 : tokenizer.decode(std::span(&tokens[i], 1))),
                   .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                   .todo = "leave the character out of the prompt"});
}

}  // namespace espalier
