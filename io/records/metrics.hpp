// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// metrics.jsonl: one object a line, each with an integer "step", each written by one write(2), so that
/// whoever follows the file sees whole lines. Numbers are printed so that equal text means equal bits; JSON
/// knows no infinity and no NaN: these are the strings "inf", "-inf" and "nan".
class MetricsWriter {
 public:
  /// Opens for appending after step `last_step`: lines of later steps, which a resumed run takes again, move to
  /// metrics.abandoned.jsonl (name_aside()); a torn last line goes. -1: an empty file. Only these lines are read, and
  /// the one before them. @throws Error (write).
  MetricsWriter(const Path& path, std::int64_t last_step);

  /// @param padding bytes of blanks at the end of the line, for what add_to_last() brings
  /// @throws Error (write); a later append starts on a fresh line.
  void append(const nlohmann::ordered_json& line, std::size_t padding = 0);

  /// Adds a field to the last line, if that is one of this step. In place: where there was padding, the file keeps its
  /// size, and who follows it sees no part of a line. @throws Error (write).
  void add_to_last(std::int64_t step, const std::string& key, double value);

 private:
  Path path_;
  FileDescriptor file_;
  bool torn_ = false;
};

/// Of the last whole line that has one; 0 where there is none, or no file.
std::int64_t last_step_in_metrics(const Path& path);

/// All whole lines of the file, in place; one that is no JSON is a discarded value.
std::vector<nlohmann::json> read_metrics(const Path& path);

/// The same one by one, for files of any length.
void visit_metrics(const Path& path, const std::function<void(const nlohmann::json&)>& visit);

}  // namespace espalier
