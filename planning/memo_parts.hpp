// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "planning/layout_limits.hpp"
#include "planning/search.hpp"

namespace espalier {

/// What a memo is about; `best` is what it recommends.
struct MemoSubject {
  const PlanProblem& problem;
  const LayoutSpace& space;
  const LayoutPrice& best;
  const std::vector<PlanProblem>* machines = nullptr;  ///< that one layout is for, where it is for several

  const PlanLayout& layout() const { return best.layout; }
  std::size_t room() const { return room_bytes(problem); }
  /// The recommended layout in another precision.
  LayoutPrice price_in(Precision precision) const;
  /// What a sentence about a layout that does not fit must not leave out; empty where it fits.
  std::string fit_text(const LayoutPrice& price) const;
};

/// A text that grows by sentences.
class MemoText {
 protected:
  template <class... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  std::string text_;
};

/// "12.3 %".
std::string share_text(double part, double whole);
/// "1.50 GiB", of what was computed.
std::string real_bytes_text(double bytes);

/// Parts of the memo, from heading to the empty line behind: where gradients are summed, and what that costs.
std::string gradients_part(const MemoSubject& subject);
/// What the precision does to time and memory, what stays above it and why, and the limits of its numbers.
std::string precision_part(const MemoSubject& subject);
/// The bottleneck, the first change that shortens it, and what else could be changed.
std::string bottleneck_part(const MemoSubject& subject);

}  // namespace espalier
