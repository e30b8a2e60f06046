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
