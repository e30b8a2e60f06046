// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/io/support.hpp"

// The small tokenizers of make_fixtures.py, and the text that they were made of.

namespace espalier::test {

inline std::filesystem::path text_fixture(const std::string& name) {
  return std::filesystem::path(ESPALIER_SOURCE_DIR) / "tests/io/text" / name;
}

inline const std::vector<std::string>& tokenizer_fixtures() {
  static const std::vector<std::string> names = {"gpt2_like.json",   "llama3_like.json", "lower_like.json",
                                                 "llama2_like.json", "small.tiktoken",
#ifdef ESPALIER_HAVE_SENTENCEPIECE
                                                 "bpe.model",        "unigram.model"
#endif
  };
  return names;
}

/// A piece to put behind a model of SentencePiece. @param type 1: normal, 3: control, 4: of a user
inline std::string sentencepiece_piece(const std::string& text, char type) {
  std::string piece = {'\x0a', static_cast<char>(text.size())};
  piece += text + std::string("\x15\0\0\0\0\x18", 6) + type;
  return std::string{'\x0a', static_cast<char>(piece.size())} + piece;
}

/// The lines of languages.txt that are not empty, and the whole of it.
inline std::vector<std::string> fixture_texts() {
  const std::string whole = read_bytes(text_fixture("languages.txt"));
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = std::min(whole.find('\n', at), whole.size());
    if (end > at)
      texts.push_back(whole.substr(at, end - at));
    at = end + 1;
  }
  texts.push_back(whole);
  return texts;
}

}  // namespace espalier::test
