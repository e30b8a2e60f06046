// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// One record of a table. Columns that the file has not are absent, and so are fields that are empty or have a word for
/// that: -, ?, n/a, nan, null, unknown.
class CsvRow {
 public:
  CsvRow(std::map<std::string, std::string> fields, std::string file, std::size_t line, std::size_t num_excess = 0)
      : fields_(std::move(fields)), file_(std::move(file)), line_(line), num_excess_(num_excess) {}
  /// "table.csv:4", for messages.
  std::string where() const;
  std::size_t line() const { return line_; }
  std::size_t num_excess() const { return num_excess_; }  ///< fields behind the last column: commas without quotes
  bool has(const std::string& column) const { return fields_.contains(column); }
  std::string text(const std::string& column) const;  ///< "" where absent

  /// A finite number; nothing where absent. @throws Error (data) for anything else.
  std::optional<double> number(const std::string& column) const;
  /// A whole number from 0 to 1e15; nothing where absent. @throws Error (data) for anything else.
  std::optional<Index> whole(const std::string& column) const;

 private:
  std::map<std::string, std::string> fields_;
  std::string file_;
  std::size_t line_;
  std::size_t num_excess_;
};

struct CsvTable {
  std::vector<std::string> columns;  ///< of the first record; none of an empty file
  std::vector<CsvRow> rows;          ///< without those that are blank
};

/// RFC 4180: fields in quotes may hold commas, line ends and doubled quotes; the first record names the columns. Fields
/// behind the last of them are counted and left out.
/// @throws Error (data) with file and line: a quote that never ends, a column that is named twice.
CsvTable parse_csv(std::string_view text, const std::string& name);

}  // namespace espalier
