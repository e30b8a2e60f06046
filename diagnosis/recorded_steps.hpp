// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/file.hpp"
#include "io/records/step_record.hpp"

namespace espalier {

/// The lines of metrics.jsonl, and of a rank's file; a torn last line is passed over.
/// @throws Error (data) with file and line: text that is not a JSON object, lacks a field, or has a time below 0.
std::vector<StepRecord> read_step_records(const Path& path);
std::vector<StepTimes> read_step_times(const Path& path);

}  // namespace espalier
