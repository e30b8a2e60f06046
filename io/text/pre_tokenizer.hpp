// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/text/regex.hpp"

namespace espalier {

/// What becomes of the matches of a pattern that splits a text.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the parts between the pattern's matches are taken as the matches
};

/// Replaces spaces by a mark, and puts a mark before the text.
struct MetaspaceStep {
  enum class Prepend { first, never, always };
  std::string mark = "\xE2\x96\x81";  ///< U+2581
  Prepend prepend = Prepend::always;  ///< first: only at the beginning of the whole text
  bool split = true;                  ///< each mark begins a word
};

/// Puts a space before each word that does not begin with one.
struct PrefixSpaceStep {};

using PreTokenizerStep = std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep>;

/// Cuts a text into words, whose tokens do not depend on each other.
class PreTokenizer {
 public:
  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }

  /// Calls `visit` with the words in order; the views last as long as the call.
  /// @param is_begin whether `text` is the beginning of the whole text
  void for_each_word(std::string_view text, bool is_begin, const std::function<void(std::string_view)>& visit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace espalier
