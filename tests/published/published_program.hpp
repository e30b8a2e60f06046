// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "planning/plan_layout.hpp"
#include "tests/published/csv.hpp"

// Which program ran a published row: tables do not say, but source, date and notes do. Whole properties only (fused
// attention or not), never a number: the efficiency curves belong to the device alone.

namespace espalier {

/// The year and month of a source, as 100 (year - 2000) + month: from an arXiv number or a year in its text. Nothing
/// where it has neither.
std::optional<int> publication_month(const std::string& source);

/// The same of a row: by its column date (or published, or year: "2023-05", "2023"), else by its source.
std::optional<int> publication_month(const CsvRow& row);

Implementation published_implementation(const CsvRow& row);

/// Where the row itself leaves it open. ZeRO-1 (the distributed optimizer) came into common use with fused attention.
std::optional<int> published_zero_stage(const CsvRow& row);

/// "selective+SP", seq_parallel=..., else with tensor parallelism since 2022 [Korthikanti et al. 2022].
bool published_sequence_parallel(const CsvRow& row);

/// schedule=... in the notes; else what the number of chunks says.
std::optional<ScheduleKind> published_schedule(const CsvRow& row);

}  // namespace espalier
