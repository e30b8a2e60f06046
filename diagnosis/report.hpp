// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "diagnosis/recorded_run.hpp"

namespace espalier {

/// The page of a run: what it was, how it learned, where its time and memory went, against what was predicted. Below 1
/// MB however long the run. Reads the traces of at most 64 ranks. Says what it lacks; fails on nothing that the run
/// holds.
std::string report_html(const RecordedRun& run);

/// Draws, and writes to `output` in one go. @throws Error (write)
void write_report(const RecordedRun& run, const Path& output);

/// Reads a run and draws it into RUN/report.html at the end of a run, for which it neither fails nor waits: returns a
/// note for the user where the page could not be written, or where records of more than 256 MB would have taken long to
/// read; else "".
std::string write_report_at_end(const Path& run) noexcept;

}  // namespace espalier
