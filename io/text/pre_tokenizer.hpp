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
  bool invert = false;  ///< what lies between the matches is what counts as matches
};

/// Spaces become a mark, which also begins a text.
struct MetaspaceStep {
  enum class Prepend { first, never, always };
  std::string mark = "\xE2\x96\x81";  ///< U+2581
  Prepend prepend = Prepend::always;  ///< first: to the begin of the whole text alone
  bool split = true;                  ///< before each mark
};

/// A space begins each piece that does not begin with one.
struct PrefixSpaceStep {};

using PreTokenizerStep = std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep>;

/// Cuts a text into words, whose tokens do not depend on each other.
class PreTokenizer {
 public:
  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }

  /// Calls `visit` with the words in order; the views last as long as the call.
  /// @param is_begin of the whole text
  void for_each_word(std::string_view text, bool is_begin, const std::function<void(std::string_view)>& visit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace espalier
