// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "diagnosis/recorded_run.hpp"
#include "diagnosis/report_page.hpp"

// The parts of the report of a run. A card is absent where the run holds nothing to draw.

namespace espalier {

// report_head
std::vector<ReportTile> report_tiles(const RecordedRun& run);
std::vector<ReportFact> report_facts(const RecordedRun& run);

// report_curves: over steps, of the whole job
std::vector<ReportCard> curve_cards(const RecordedRun& run);

// report_phases: where time went, of rank 0 over steps, and of each rank in a typical step
std::optional<ReportCard> phases_card(const RecordedRun& run);
std::optional<ReportCard> ranks_card(const RecordedRun& run);

// report_memory
std::optional<ReportCard> memory_card(const RecordedRun& run);

// report_timeline: one step, from the traces
std::optional<ReportCard> timeline_card(const RecordedRun& run);

/// The steps that say how fast a run is, as indices of `count`: without the first tenth, where buffers are touched for
/// the first time.
std::size_t first_typical_step(std::size_t count);

/// Median step_seconds of those; nothing without steps.
std::optional<double> typical_step_seconds(const RecordedRun& run);

/// What the trainer noted in the details of run.json under this name; an empty object where it is none.
nlohmann::json noted(const RecordedRun& run, const char* name);

/// A number of that; 0 where there is none.
double noted_number(const nlohmann::json& object, const char* name);

/// "+3.2 %"
std::string difference_text(double measured, double predicted);

}  // namespace espalier
