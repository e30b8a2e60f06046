// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// Names in the directory of a model, as Hugging Face gives them.
struct TokenizerFile {
  static constexpr const char* json = "tokenizer.json";
  static constexpr const char* model = "tokenizer.model";  ///< of SentencePiece or tiktoken
  static constexpr const char* config = "tokenizer_config.json";
  static constexpr const char* chat_template = "chat_template.jinja";
};

/// Does a file with these first bytes hold a JSON object?
bool is_tokenizer_json(std::string_view begin);

/// Reads the tokenizer.json of Hugging Face's `tokenizers`: models of type BPE, with bytes (GPT-2, Llama 3, Qwen,
/// SmolLM) or characters and byte fallback (Llama 2, Mistral). docs/tokenizers.md lists the parts that are supported.
/// @throws Error (data): another part is named, and none is passed over
std::unique_ptr<Tokenizer> read_tokenizer_json(const Path& path);

/// Does a file begin as SentencePiece's do: with a piece of a vocabulary, as protobuf?
bool is_sentencepiece_file(std::string_view begin);

/// Reads a model of SentencePiece (BPE or unigram), through its library.
/// @throws Error: (data) for a file that is none or is damaged, (usage) where Espalier was built without the library
std::unique_ptr<Tokenizer> read_sentencepiece_model(const Path& path);

/// Does a file begin as tiktoken's do: on each line a token in base64, a space and its rank?
bool is_tiktoken_file(std::string_view begin);

/// Reads tiktoken's ranks. The file has no pattern and no special tokens: those of the known tokenizers are found by
/// the number of ranks (gpt2, p50k_base, cl100k_base, o200k_base, Whisper, Qwen, Llama 3, Llama 4); for others they
/// stand beside it, in tiktoken_rules(FILE): {"pattern": "...", "special_tokens": {"<|endoftext|>": 100257}}.
/// @throws Error (data)
std::unique_ptr<Tokenizer> read_tiktoken_file(const Path& path);

/// FILE.json
inline Path tiktoken_rules(const Path& file) { return file.string() + ".json"; }

}  // namespace espalier
