// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/generated_text.hpp"

#include <algorithm>
#include <utility>

namespace espalier {

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
  return sample(candidates({logits.begin(), end}, tokens_, rules_.sampling),
                random_.uniform(static_cast<std::uint64_t>(num_drawn_)));
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

void TextPrinter::print(std::vector<GeneratedText>& texts) {
  for (; at_ < texts.size(); ++at_) {
    GeneratedText& text = texts[at_];
    if (!line_ && texts.size() > 1)  // as head and tail do
      print_answer("{}==> {} of {} <==\n", at_ == 0 ? "" : "\n", at_ + 1, texts.size());
    if (!line_)
      line_.emplace();
    line_->write(text.take());
    if (!text.is_complete())
      return;
    line_->finish();
    line_.reset();
  }
}

}  // namespace espalier
