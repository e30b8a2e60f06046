// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "diagnosis/recorded_run.hpp"

// The data of the page of a run. docs/report.md lists the fields. A part is null where the run holds nothing to draw.

namespace espalier {

using ReportJson = nlohmann::ordered_json;

/// All of it: what diagnosis_json() says, without the ranks of its profile, and what the charts show. Below 700 kB
/// however long the run. Reads the traces of at most 64 ranks. Says what it lacks; fails on nothing that the run holds.
ReportJson report_data(const RecordedRun& run);

// report_series
ReportJson series_data(const RecordedRun& run);  ///< curves over steps, of the whole job
ReportJson phases_data(const RecordedRun& run);  ///< of rank 0, over steps
ReportJson ranks_data(const RecordedRun& run);   ///< of each rank in a typical step
ReportJson memory_data(const RecordedRun& run);

// report_colours: the colours of page.css by the names of phases and of categories of memory
ReportJson colours_data();
const char* colour_of(Phase phase);

// report_timeline: the last step that all traced ranks have
ReportJson timeline_data(const RecordedRun& run);

/// Rounded to six digits. What no axis could hold is a text: "not a number", "infinite".
ReportJson number_data(double value);

/// The steps that say how fast a run is, as indices of `count`: without the first tenth, where buffers are touched for
/// the first time.
std::size_t first_typical_step(std::size_t count);

}  // namespace espalier
