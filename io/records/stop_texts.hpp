// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// Ends a text that comes in pieces, as soon as one of some texts is complete in it: where that begins, the longest
/// where several end together. What may be the beginning of one is held back until it is known.
class StopTexts {
 public:
  /// @pre none of them is empty
  explicit StopTexts(std::vector<std::string> texts);

  /// The next piece. @returns what is known to come before any of the texts
  std::string write(std::string_view piece);
  /// Has one of them come? Then nothing follows.
  bool found() const { return found_; }
  /// There are no more pieces. @returns what was held back
  std::string finish();

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace espalier
