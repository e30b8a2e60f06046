// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "planning/plan_layout.hpp"

namespace espalier {
namespace {

// By the way to ask, what has no effect on the answer.
void refuse_ignored(const CLI::App& command, const PlanOptions& options) {
  struct Row {
    bool applies;
    const char* asked;
    std::vector<const char*> ignored;
  };
  const std::array<Row, 7> table = {
      Row{!options.cases.empty(),
          "with --cases",
          {"--model", "--devices", "--batch", "--sequence-length", "--precision", "--fix", "--layout", "--scale",
           "--weak", "--max-step-seconds", "--min-tokens-per-second", "--reserve-gib", "--context", "--runnable",
           "--top", "--memo", "--config", "--rehearse"}},
      Row{options.clusters.size() > 1 && options.cases.empty(),
          "with a second --cluster",
          {"--layout", "--scale", "--memo", "--config", "--rehearse", "--max-step-seconds", "--min-tokens-per-second",
           "--top"}},
      Row{!options.layouts.empty(),
          "with --layout",
          {"--fix", "--scale", "--memo", "--config", "--context", "--runnable", "--max-step-seconds",
           "--min-tokens-per-second", "--top"}},
      Row{!options.scale.empty() && options.memo.empty(),
          "with --scale and no --memo",
          {"--devices", "--config", "--max-step-seconds", "--min-tokens-per-second", "--top"}},
      Row{options.scale.empty(), "without --scale", {"--weak"}},
      Row{options.rehearsal.directory.empty(), "without --rehearse", {"--rehearse-seconds", "--mpiexec"}},
      Row{options.json, "with --json", {"--top"}}};
  for (const Row& row : table)
    for (const char* const option : row.ignored)
      if (row.applies && command.count(option) > 0)
        throw Error(ExitCode::usage,
                    {.what = "an option that would have no effect",
                     .where = "espalier plan",
                     .got = fmt::format("{} {}", option, row.asked),
                     .todo = fmt::format("leave {} away, or ask in two commands (espalier plan --help)", option)});
}

// The degree of data parallelism follows from the devices of each point.
void refuse_fixed_replicas(const PlanOptions& options) {
  if (options.scale.empty() || options.fixed.empty())
    return;
  const std::vector<std::string> keys = plan_layout_keys_in(options.fixed);
  if (std::find(keys.begin(), keys.end(), "data") != keys.end())
    throw Error(ExitCode::usage, {.what = "the number of replicas cannot be fixed along a scaling curve",
                                  .where = "espalier plan",
                                  .got = "--fix " + options.fixed,
                                  .wanted = "other keys with --scale: the replicas grow with the devices",
                                  .todo = "leave data away, or fix tensor and pipeline"});
}

}  // namespace

void refuse_without_effect(const CLI::App& command, const PlanOptions& options) {
  refuse_ignored(command, options);
  refuse_fixed_replicas(options);
}

}  // namespace espalier
