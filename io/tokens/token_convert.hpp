// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/tokens/token_file.hpp"

namespace espalier {

struct ConvertOptions {
  TokenFormat format = TokenFormat::espalier;  ///< or megatron
  std::optional<TokenId> document_end = {};    ///< of files that do not say what their documents are
  Index vocab_size = 0;                        ///< 0: as the inputs state, or the largest id and 1
  std::string tokenizer = {};                  ///< its name; empty: as the inputs state
  Index tokenizer_size = 0;                    ///< every token is below it; 0: not known
};

struct ConvertSummary {
  Index num_tokens = 0;
  Index num_documents = 0;
  Index bytes_per_token = 2;
  Index vocab_size = 0;
  std::string tokenizer;
  std::vector<Path> written;
};

/// Writes the tokens of files, one after the other, in another format. Tokens are 2 bytes wide, or 4 where they are
/// wider in an input. Documents that an input states, or `document_end` ends, are kept, and in our format loss masks
/// and the rows of a single input. The inputs are read twice: all are checked before anything is written. Keeps a piece
/// of a file in memory.
/// @throws Error (data) for a damaged input, for tokens beyond the vocabulary, for inputs of several tokenizers, and
/// for one in rows among others;
/// (usage) for an output that is an input; (write) for an output that exists, but for a token file of ours
ConvertSummary convert_tokens(const std::vector<Path>& inputs, const Path& output, const ConvertOptions& options);

}  // namespace espalier
