// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/require_file_size.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"

namespace espalier {

void require_file_size(const RunConfig& config, int num_ranks, std::size_t limit) {
  const Index bytes_per_parameter =  // weights or master weights, and two moments
      3 * static_cast<Index>(config.layout.precision == Precision::fp64 ? sizeof(double) : sizeof(float));
  const Index bytes = num_parameters(config.model.shape) * bytes_per_parameter;
  const Index ranks_per_file = config.checkpoint.ranks_per_file;
  const Index max_files = (num_ranks + ranks_per_file - 1) / ranks_per_file;
  const auto min_size = static_cast<std::size_t>(bytes / max_files);
  if (min_size <= limit)
    return;
  throw Error(ExitCode::write,
              {.what = "a checkpoint's files would be larger than a file of this process may be",
               .got = fmt::format("ulimit -f {} ({})", limit / 1024, bytes_text(limit)),
               .wanted = fmt::format("{} for a file, of at most {} with {} together", bytes_text(min_size),
                                     counted(max_files, "file"), bytes_text(static_cast<std::size_t>(bytes))),
               .todo = "raise the limit: ulimit -f unlimited"});
}

}  // namespace espalier
