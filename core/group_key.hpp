// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>

#include "core/axis.hpp"

namespace espalier {

/// Names the ranks over which a gradient is summed: those that differ from this rank along `axes` only. For a tied
/// tensor these are ranks of the first and of the last stage, which both hold it.
struct GroupKey {
  AxisSet axes = token_axes;
  bool tied = false;
  /// Only so many consecutive tp ranks, which hold the same elements (replicated heads of K and V); 0: all tp ranks.
  int tp_run = 0;

  bool operator==(const GroupKey&) const = default;
  /// The order in the flat arrays. Tied gradients come first: they are final last, and arrays are reduced from their
  /// end.
  std::strong_ordering operator<=>(const GroupKey& other) const {
    if (tied != other.tied)
      return other.tied <=> tied;
    return axes != other.axes ? axes <=> other.axes : tp_run <=> other.tp_run;
  }
};

/// "dp" (of all token_axes), "tp+dp", "tied", "tp+dp, runs of 2"; "cp+dp" of what is cut over ep.
std::string to_string(const GroupKey& key);

}  // namespace espalier
