// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// The data of the page of a run, for programs; docs/report.md lists the fields.
std::string report_json(const RecordedRun& run);

/// The page: that data, and the script of diagnosis/page/ that draws it with Chart.js. One file that needs no other,
/// below 1 MB however long the run. Its security policy forbids it to load anything.
std::string report_html(const RecordedRun& run);

/// Writes the page to `output` in one go. @throws Error (write)
void write_report(const RecordedRun& run, const Path& output);

/// Reads a run and writes RUN/report.html at the end of a run, for which it neither fails nor waits: returns a note for
/// the user where the page could not be written, or where records of more than 256 MB would have taken long to read;
/// else "".
std::string write_report_at_end(const Path& run) noexcept;

}  // namespace espalier
