// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/command_line.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "planning/layout_option.hpp"

namespace espalier {
namespace {

// Options that have no effect on the answer to what is asked.
struct Ignored {
  bool applies;
  const char* asked;
  std::vector<const char*> options;
  std::string instead = "";  // what the options do work with; empty: nothing
};

std::vector<Ignored> ignored_options(const PlanOptions& options) {
  const bool layout = !options.layouts.empty();
  const std::string fix =
      layout ? fmt::format("--fix {} (which searches the rest) in place of --layout", options.layouts.front()) : "";
  return {
      {options.clusters.size() > 1,
       "with a second --cluster",
       {"--layout", "--scale", "--rehearse", "--top"},
       "one --cluster, and --fix with the choices of the common layout"},
      {options.clusters.size() != 2, "without two of --cluster", {"--link"}},
      {layout, "with --layout", {"--memo", "--config", "--max-step-seconds", "--min-tokens-per-second", "--top"}, fix},
      {layout, "with --layout", {"--fix", "--scale", "--context"}},
      {!options.scale.empty() && options.memo.empty(),
       "with --scale and no --memo",
       {"--config", "--top"},
       "--devices with one size in place of --scale"},
      {!options.scale.empty() && options.memo.empty(), "with --scale and no --memo", {"--devices"}},
      {options.scale.empty(), "without --scale", {"--weak"}},
      {options.rehearsal.directory.empty(),
       "without --rehearse",
       {"--rehearse-seconds", "--mpiexec", "--ranks-per-gpu", "--transport"}},
      {options.config.empty(), "without --config", {"--set"}}};
}

// Options of GPUs are known to builds for GPUs alone.
bool is_given(const CLI::App& command, const char* name) {
  const CLI::Option* const option = command.get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

void refuse_ignored(const CLI::App& command, const PlanOptions& options) {
  for (const Ignored& row : ignored_options(options))
    for (const char* const option : row.options)
      if (row.applies && is_given(command, option))
        throw Error(ExitCode::usage,
                    {.what = "an option that would have no effect",
                     .where = "espalier plan",
                     .got = fmt::format("{} {}", option, row.asked),
                     .todo = row.instead.empty()
                                 ? fmt::format("leave {} away, or ask in two commands (espalier plan --help)", option)
                                 : fmt::format("{}, with {}", row.instead, option)});
}

// One choice in two options would leave one of them without effect.
void refuse_chosen_twice(const CLI::App& command, const PlanOptions& options, const std::vector<std::string>& fixed) {
  for (const auto& [key, option] : {std::pair("precision", "--precision"), {"context", "--context"}})
    if (command.count(option) > 0 && std::ranges::find(fixed, key) != fixed.end())
      throw Error(ExitCode::usage, {.what = "a choice is both fixed and open",
                                    .where = "espalier plan",
                                    .got = fmt::format("{} and --fix {}=...", option, key),
                                    .todo = "leave one of the two away"});
  if (!options.layouts.empty() && options.precisions.size() > 1)
    throw Error(ExitCode::usage,
                {.what = "a layout has one precision",
                 .where = "espalier plan --layout",
                 .got = fmt::format("--precision {}", fmt::join(options.precisions, ",")),
                 .todo = "leave --precision away, and name it in each layout: --layout data=8,precision=fp8"});
  if (!options.memo.empty() && options.memo == options.config)
    throw Error(ExitCode::usage, {.what = "one file cannot be both the memo and the config",
                                  .where = "espalier plan",
                                  .got = fmt::format("--memo {0} --config {0}", options.memo),
                                  .todo = "name two files"});
}

// What is fixed must be readable, and the degree of data parallelism follows from the devices of each point of --scale.
void check_fixed(const CLI::App& command, const PlanOptions& options) {
  const std::string fixed = fixed_choices(options);
  const std::vector<std::string> keys =
      options.fixed.empty() ? std::vector<std::string>{} : layout_keys_in(fixed, "--fix");
  refuse_chosen_twice(command, options, keys);
  if (!options.scale.empty() && std::find(keys.begin(), keys.end(), "data") != keys.end())
    throw Error(ExitCode::usage, {.what = "the number of replicas cannot be fixed along a scaling curve",
                                  .where = "espalier plan",
                                  .got = "--fix " + fixed,
                                  .wanted = "other keys with --scale: the replicas grow with the devices",
                                  .todo = "leave data away, or fix tensor and pipeline"});
}

}  // namespace

std::string fixed_choices(const PlanOptions& options) { return fmt::format("{}", fmt::join(options.fixed, ",")); }

void check_options(const CLI::App& command, const PlanOptions& options) {
  refuse_empty_values(command);
  refuse_ignored(command, options);
  check_fixed(command, options);
}

void drop_repeated_sizes(PlanOptions& options) {
  std::vector<int> sizes;
  for (const int size : options.scale)
    if (std::ranges::find(sizes, size) == sizes.end())
      sizes.push_back(size);
    else
      print_note("note: --scale names {} twice: it is one point of the curve\n", size);
  options.scale = sizes;
}

}  // namespace espalier
