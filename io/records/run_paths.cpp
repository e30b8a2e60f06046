// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_paths.hpp"

#include "io/rank_file_name.hpp"

namespace espalier {

Path rank_metrics_path(const Path& run, int rank) { return run / RunFolder::ranks / rank_file_name(rank, ".jsonl"); }

}  // namespace espalier
