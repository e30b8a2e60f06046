// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "diagnosis/recorded_run.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// A run directory whose config.toml this version knows to the last key.
/// @throws Error as read_recorded_run() and require_known_keys()
inline RecordedRun read_run(const Path& directory) {
  RecordedRun run = read_recorded_run(directory);
  require_known_keys(directory, run.facts.program);
  return run;
}

}  // namespace espalier
