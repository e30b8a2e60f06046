// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// What a text for people says of a program. A phrase is words in a row, "flash attention 3", in any letters and cut at
/// whatever is no letter or digit; its last word may go on ("compil" finds compile and compiled) unless it ends in a
/// space.
class DescribedWords {
 public:
  explicit DescribedWords(std::string text);

  /// Any of the phrases, where nothing denies it: "no torch.compile", "without cuDNN", "tp-comm-overlap off".
  bool says(std::initializer_list<const char*> phrases) const;
  bool denies(std::initializer_list<const char*> phrases) const;

  /// The very characters, denied or not: for tags like "mp_mode=PURE" and numbers of papers.
  bool quotes(std::string_view part) const;

 private:
  bool finds(const std::string& phrase, bool denied) const;
  bool is_denied(std::size_t begin, std::size_t end) const;

  std::string text_;
  std::vector<std::string> words_;
};

}  // namespace espalier
