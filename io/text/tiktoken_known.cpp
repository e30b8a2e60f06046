// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/tiktoken_known.hpp"

#include <fmt/format.h>

#include <functional>

namespace espalier {
namespace {

// Of tiktoken's openai_public.py, and of the tokenizers that Meta and Alibaba have published.
constexpr const char* r50k = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char* cl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using SpecialTokens = std::vector<std::pair<std::string, TokenId>>;

SpecialTokens numbered(const std::vector<std::string>& texts, TokenId first) {
  SpecialTokens tokens;
  for (const std::string& text : texts)
    tokens.emplace_back(text, first++);
  return tokens;
}

TiktokenSplit llama3_split() {
  std::vector<std::string> texts = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>",
                                    "<|image|>"};
  for (int i = 2; texts.size() < 256; ++i)
    texts.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  return {.pattern = llama3_pattern, .special_tokens = numbered(texts, 128000), .prefix = {128000}};
}

TiktokenSplit qwen_split() {
  std::vector<std::string> texts = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i)
    texts.push_back(fmt::format("<|extra_{}|>", i));
  return {.pattern = qwen, .special_tokens = numbered(texts, 151643), .nfc = true};
}

TiktokenSplit cl100k_split() {
  return {.pattern = cl100k,
          .special_tokens = {{"<|endoftext|>", 100257},
                             {"<|fim_prefix|>", 100258},
                             {"<|fim_middle|>", 100259},
                             {"<|fim_suffix|>", 100260},
                             {"<|endofprompt|>", 100276}}};
}

struct KnownTiktoken {
  Index num_ranks;
  const char* name;
  TiktokenSplit (*split)();
};

constexpr KnownTiktoken known_tiktoken[] = {
    {50256, "gpt2",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50256}}};
     }},
    {50257, "Whisper",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50257}}};
     }},
    {50280, "p50k_base",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50256}}};
     }},
    {100256, "cl100k_base", cl100k_split},
    {128000, "Llama 3", llama3_split},
    {151643, "Qwen", qwen_split},
    {199998, "o200k_base", [] {
       return TiktokenSplit{.pattern = o200k,
                            .special_tokens = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
     }}};

}  // namespace

std::optional<TiktokenSplit> known_tiktoken_split(Index num_ranks) {
  for (const KnownTiktoken& known : known_tiktoken)
    if (known.num_ranks == num_ranks)
      return known.split();
  return std::nullopt;
}

std::string known_tiktoken_names() {
  std::string names;
  for (const KnownTiktoken& known : known_tiktoken)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", known.name, known.num_ranks);
  return names;
}

}  // namespace espalier
