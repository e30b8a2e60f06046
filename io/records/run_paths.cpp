// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_paths.hpp"

#include <fmt/format.h>

namespace espalier {

Path rank_metrics_path(const Path& run, int rank) {
  return run / RunFolder::ranks / fmt::format("rank-{:05}.jsonl", rank);
}

}  // namespace espalier
