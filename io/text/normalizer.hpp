// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/regex.hpp"

namespace espalier {

/// What a text becomes before it is cut into words: steps in their order. Texts are valid UTF-8.
class Normalizer {
 public:
  enum class Form { nfc, nfd, nfkc, nfkd };

  /// @param unicode_9 of characters that came later nothing is known, as `tokenizers` has it
  void add_form(Form form, bool unicode_9);
  void add_lower_case();
  void add_prepend(std::string prefix);             ///< not to an empty text
  void add_replace(Regex pattern, std::string by);  ///< each match
  void add_strip(bool left, bool right);            ///< white space

  bool empty() const { return steps_.empty(); }
  std::string apply(std::string text) const;
  /// Does the normalized text begin where the text does? Not so where white space is taken off.
  bool keeps_begin(std::string_view text) const;

 private:
  bool strips_left_ = false;
  std::vector<std::function<std::string(std::string)>> steps_;
};

/// Each match replaced.
std::string replace_matches(std::string_view text, const Regex& pattern, std::string_view by);

/// Unicode's White_Space?
bool is_white_space(std::uint32_t code_point);

}  // namespace espalier
