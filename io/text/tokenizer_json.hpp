// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// Does a file with these first bytes hold a JSON object?
bool is_tokenizer_json(std::string_view begin);

/// Reads the tokenizer.json of Hugging Face's `tokenizers`: models of type BPE, with bytes (GPT-2, Llama 3, Qwen,
/// SmolLM) or characters and byte fallback (Llama 2, Mistral). docs/tokenizers.md lists the parts that are supported.
/// @throws Error (data): another part is named, and none is passed over
std::unique_ptr<Tokenizer> read_tokenizer_json(const Path& path);

}  // namespace espalier
