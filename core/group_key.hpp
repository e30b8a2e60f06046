// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>

#include "core/axis.hpp"

namespace espalier {

/// Names the ranks over which a gradient is summed: those that differ from us along `axes` only; of a tied tensor those
/// of the first and of the last stage, which both hold it.
struct GroupKey {
  AxisSet axes = {Axis::dp};
  bool tied = false;

  bool operator==(const GroupKey&) const = default;
  /// The order in the flat arrays. Tied gradients come first: they are final last, and arrays are reduced from their
  /// end.
  std::strong_ordering operator<=>(const GroupKey& other) const {
    return tied != other.tied ? other.tied <=> tied : axes <=> other.axes;
  }
};

std::string to_string(const GroupKey& key);  ///< "dp", "tp+dp", "tied"

}  // namespace espalier
