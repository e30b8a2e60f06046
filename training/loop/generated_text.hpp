// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "io/text/stream_decoder.hpp"
#include "models/sampler.hpp"

namespace espalier {

/// How tokens are drawn, and where a text ends.
struct GenerationRules {
  Index max_tokens = 400;
  std::vector<std::string> stop_texts;
  std::vector<TokenId> stop_tokens;
  SamplingConfig sampling{.temperature = 0.8, .top_p = 0.95};
  std::uint64_t seed = 1;
  bool is_chat =
      false;  ///< prompts are conversations up to the answer, with all their tokens; the answer alone is written
};

/// A prompt and its continuation by the model, token by token. It depends on the seed, but not on the other texts.
class GeneratedText {
 public:
  /// `rules` and `tokenizer` must outlive it.
  GeneratedText(const std::string& prompt, const GenerationRules& rules, const Tokenizer& tokenizer);

  bool is_complete() const { return is_complete_; }
  Index num_tokens() const { return std::ssize(tokens_); }  ///< prompt included
  /// The last tokens, at most so many: the window of positions slides.
  std::span<const TokenId> window(Index longest) const;
  /// The token that follows, drawn from the logits (V) of the model.
  TokenId draw(const std::vector<float>& logits) const;
  /// Appends the token, or ends the text.
  void add(TokenId token);
  /// The new text since the last call.
  std::string take();

 private:
  const GenerationRules& rules_;
  const Tokenizer& tokenizer_;
  RandomStream random_;
  StreamDecoder decoder_;
  StopTexts stop_;
  std::vector<TokenId> tokens_;  // prompt included
  Index num_drawn_ = 0;
  std::string pending_;
  bool is_complete_ = false;
};

/// A model may have a smaller vocabulary than its tokenizer: then it has no ids for some texts.
/// @throws Error (usage) for a prompt with a token that is not below `vocab_size`; `name` says which prompt it is
void require_vocabulary(const std::string& prompt, const std::string& name, const Tokenizer& tokenizer,
                        Index vocab_size);

}  // namespace espalier
