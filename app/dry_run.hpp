// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/config/run_config.hpp"

namespace espalier {

/// Prints what a run of `ranks` ranks would be: mesh, memory by category, schedule, work of a step. Allocates nothing
/// and needs no ranks. Stages are those that the run directory has, else balanced by counted FLOPs: nothing is
/// measured. @returns the exit code.
int dry_run(RunConfig config, int ranks, bool events);

}  // namespace espalier
