// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// Does a file begin as SentencePiece's do: with a piece of a vocabulary, as protobuf?
bool is_sentencepiece_file(std::string_view begin);

/// Reads a model of SentencePiece (BPE or unigram), through its library.
/// @throws Error: (data) for a file that is none or is damaged, (usage) where Espalier was built without the library
std::unique_ptr<Tokenizer> read_sentencepiece_model(const Path& path);

}  // namespace espalier
