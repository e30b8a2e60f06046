// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/layout_space.hpp"
#include "tests/published/csv.hpp"

namespace espalier {

/// What a row says of its layout; what it leaves out is open.
struct PublishedSpace {
  LayoutSpace space;
  double recompute_share = 1;   ///< of the layers that recompute, where any does
  bool keeps_products = false;  ///< that share is one of their products
  std::string why_not;          ///< why no layout of it can be priced; empty when one can
};

/// @param one_block the row is of one block on one device, and needs neither devices nor a batch
/// @throws Error (data) for a field that is no number.
PublishedSpace published_space(const CsvRow& row, bool one_block);

/// The layouts of the space, with blocks on parts as published programs give them.
std::vector<Layout> published_layouts(const PlanProblem& problem, const LayoutSpace& space);

}  // namespace espalier
