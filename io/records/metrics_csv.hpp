// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// metrics.csv: the lines of metrics.jsonl as a table, fields of a field as "seconds.forward". A field that a line does
/// not have is empty. Each row is written by one write(2).
class MetricsCsv {
 public:
  /// Writes the whole file from the lines that metrics.jsonl has now: so its steps are those, whatever was killed when.
  /// @param example a line with all fields: its order is that of the columns
  /// @throws Error (write), also by the other functions, and where a file of another kind stands; (data) where
  /// metrics.jsonl cannot be read
  MetricsCsv(const Path& path, const Path& metrics, const nlohmann::ordered_json& example);

  void append(const nlohmann::ordered_json& line);

  /// Adds a field to the last row, if that is one of this step, in place.
  void add_to_last(std::int64_t step, const std::string& key, double value);

 private:
  std::string row(const nlohmann::ordered_json& line) const;
  void write_last();

  Path path_;
  std::vector<std::string> columns_;
  FileDescriptor file_;
  nlohmann::ordered_json last_ = nlohmann::ordered_json::object();  // flat
  std::size_t last_begin_ = 0;
  std::size_t end_ = 0;
};

/// The same fields one level deep: {"a": {"b": 1}} becomes {"a.b": 1}.
nlohmann::ordered_json flat_fields(const nlohmann::ordered_json& line, const std::string& separator = ".");

}  // namespace espalier
