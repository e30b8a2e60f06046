// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planning/layout_space.hpp"
#include "tests/published/csv.hpp"
#include "tests/published/published_memory.hpp"

namespace espalier {

/// One row of a table with the columns of a published configuration, read.
struct PublishedCase {
  std::string id;
  std::string source;     ///< as the table has it
  std::string origin;     ///< of it what rows of one document share: "arXiv:2104.04473"
  std::string framework;  ///< the program that ran it, where the table tells
  std::string why_not;    ///< why its time cannot be priced; empty when it can
  bool timed = false;     ///< has a comparable step time
  double measured_seconds = 0;
  double measured_bytes = 0;     ///< 0: none published
  bool analytic = false;         ///< its memory is a formula's
  bool states_only = false;      ///< of which only weights, gradients and optimizer count
  bool last_stage = false;       ///< its memory is that of the last rank
  bool balances_stages = false;  ///< its program gives stages blocks by their work, not by their number
  bool one_block = false;        ///< its time is that of one block, forward and backward
  double parameters = 0;         ///< published, where there is no shape
  PlanProblem problem;
  PublishedMemory memory;
  LayoutSpace space;  ///< what is not published is open
};

/// Reads a row; what is missing or cannot be priced is said in why_not. A cluster of `calibrated` stands
/// for all rows of its device type.
PublishedCase read_case(const CsvRow& row, const std::vector<Cluster>& calibrated = {});

/// A table, read.
struct PublishedTable {
  std::vector<PublishedCase> cases;
  std::vector<std::string> unknown_columns;  ///< that no row is read from, each with the name that it may mean
  bool tells_programs = false;               ///< has the column `program`
};

/// All rows of a table. @throws Error (data) where it has none, or lacks columns without which no row can be priced:
/// they are named.
PublishedTable read_cases(std::string_view text, const std::string& name, const std::vector<Cluster>& calibrated = {});

/// A row with its prices; nothing where there is none.
struct PricedCase {
  PublishedCase published;
  std::optional<LayoutPrice> price = {};
  Layout layout = {};          ///< that is priced: the published one, what it leaves open searched
  std::string too_large = {};  ///< why its devices have no room for it by this price; empty when they have
  std::optional<double> predicted_seconds = {};
  std::optional<double> predicted_bytes = {};
  double time_error() const { return *predicted_seconds / published.measured_seconds - 1; }
  double memory_error() const { return *predicted_bytes / published.measured_bytes - 1; }
};
PricedCase price_case(PublishedCase published);

}  // namespace espalier
