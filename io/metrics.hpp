// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// metrics.jsonl: one object a line, each with an integer "step", each written by one write(2), so that
/// whoever follows the file sees whole lines. Numbers are printed so that equal text means equal bits; JSON
/// knows no infinity and no NaN: these are the strings "inf", "-inf" and "nan".
class MetricsWriter {
 public:
  /// Opens for appending after step `last_step`: lines of later steps, which a resumed run takes again, and a
  /// torn last line go. -1: an empty file.
  MetricsWriter(const Path& path, std::int64_t last_step);

  /// @throws Error (write); a later append starts on a fresh line.
  void append(const nlohmann::ordered_json& line);

 private:
  Path path_;
  FileDescriptor file_;
  bool torn_ = false;
};

/// For a run that begins again: renames the file to metrics.abandoned.jsonl. False where there is none, or nothing in
/// it.
bool set_aside_metrics(const Path& path);

/// All whole lines of the file, in place; one that is no JSON is a discarded value.
std::vector<nlohmann::json> read_metrics(const Path& path);

}  // namespace espalier
