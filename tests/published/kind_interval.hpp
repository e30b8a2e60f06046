// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier {

/// A row that was priced without its source.
struct KindError {
  std::string kind;
  std::string source;
  double ratio = 0;  ///< measured / predicted
};

/// Of the rows of a kind.
struct KindInterval {
  std::string kind;
  std::size_t rows = 0;
  std::size_t sources = 0;
  double low = 0;  ///< ratios of 9 of 10 rows lie between these
  double high = 0;
  double held = 0;  ///< part of the rows that lie in the interval of the other sources of their kind
};

/// Of each kind, and last of all rows together, of which only `rows` and `held` are filled in; none of no rows.
/// @param outside part of the rows that lies below an interval, and above: less than a twentieth, since other sources
///   err more
std::vector<KindInterval> kind_intervals(const std::vector<KindError>& errors, double outside);

/// One layout of a problem, priced without its source.
struct LayoutRow {
  std::string source;
  std::string layout;
  double predicted = 0;  ///< seconds
  double measured = 0;
};

/// Two of one problem.
struct LayoutPair {
  std::string source;
  double predicted_share = 0;  ///< by which the slower is predicted to be slower
  bool in_order = false;       ///< and it was
};

/// Adds the pairs of the rows of one problem that differ in layout.
void add_pairs(const std::vector<LayoutRow>& rows, std::vector<LayoutPair>& pairs);

/// The smallest share beyond which 9 of 10 pairs are in the predicted order; a pair counts less where its source has
/// many.
double resolution_of(std::vector<LayoutPair> pairs);

}  // namespace espalier
