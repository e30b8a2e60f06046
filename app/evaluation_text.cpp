// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/evaluation_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/input_limits.hpp"

namespace espalier {

EvaluationText read_evaluation_text(const std::string& file, const Tokenizer& tokenizer, Index vocab_size) {
  const std::string text = read_file(file, ExitCode::data, LargestFile::text);
  EvaluationText result;
  result.tokenizer = tokenizer.name();
  tokenizer.encode(text, result.tokens, {.add_special_tokens = true});
  if (result.tokens.size() < 2)
    throw Error(ExitCode::data, {.what = "a text is too short to evaluate",
                                 .where = file,
                                 .got = fmt::format("{} tokens of {} bytes", result.tokens.size(), text.size()),
                                 .wanted = "at least two tokens",
                                 .todo = "name a longer text"});
  if (const auto beyond = std::ranges::find_if(result.tokens, [&](TokenId token) { return token >= vocab_size; });
      beyond != result.tokens.end())
    throw Error(ExitCode::data, {.what = "a token of the text is outside the model's vocabulary",
                                 .where = fmt::format("{}, token {}", file, beyond - result.tokens.begin() + 1),
                                 .got = fmt::format("id {}", *beyond),
                                 .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                                 .todo = "use the model's tokenizer: --tokenizer FILE"});
  const std::string first = tokenizer.decode(std::span(result.tokens).first(1), true);  // empty: it is a special token
  result.bytes = std::max<Index>(1, std::ssize(text) - std::ssize(first));
  return result;
}

}  // namespace espalier
