// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "training/config/run_config.hpp"

namespace espalier {

/// Called before the first step, so that the first save does not end the run.
/// @throws Error (write) when the files of a checkpoint cannot all be as small as `limit` bytes (ulimit -f).
void require_file_size(const RunConfig& config, int num_ranks, std::size_t limit);

}  // namespace espalier
