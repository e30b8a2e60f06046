// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// Does a file begin as tiktoken's do: a token in base64, a space and its rank, a line each?
bool is_tiktoken_file(std::string_view begin);

/// Reads tiktoken's ranks. The file has no pattern and no special tokens: those of the known tokenizers are found by
/// the number of ranks (gpt2, p50k_base, cl100k_base, o200k_base, Whisper, Qwen, Llama 3, Llama 4); for others they
/// stand beside it, in FILE.json: {"pattern": "...", "special_tokens": {"<|endoftext|>": 100257}}.
/// @throws Error (data)
std::unique_ptr<Tokenizer> read_tiktoken_file(const Path& path);

}  // namespace espalier
