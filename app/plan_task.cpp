// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_task.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "app/command_line.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "planning/layout_option.hpp"
#include "training/pretrained/model_file.hpp"

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
      layout ? fmt::format("--fix {} (which searches the rest) instead of --layout", options.layouts.front()) : "";
  return {
      {options.clusters.size() > 1,
       "with a second --cluster",
       {"--layout", "--scale", "--rehearse", "--top"},
       "one --cluster at a time"},
      {options.clusters.size() != 2, "without two of --cluster", {"--link"}},
      {layout, "with --layout", {"--memo", "--config", "--max-step-seconds", "--min-tokens-per-second", "--top"}, fix},
      {layout, "with --layout", {"--fix", "--scale", "--context"}},
      {!options.scale.empty() && options.memo.empty(),
       "with --scale and no --memo",
       {"--config", "--top"},
       "--devices with one size instead of --scale"},
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
                    {.what = "an option would have no effect",
                     .where = "espalier plan",
                     .got = fmt::format("{} {}", option, row.asked),
                     .todo = row.instead.empty()
                                 ? fmt::format("leave out {}, or use two commands (espalier plan --help)", option)
                                 : fmt::format("{}, with {}", row.instead, option)});
}

// One choice in two options would leave one of them without effect.
void refuse_chosen_twice(const CLI::App& command, const PlanOptions& options, const std::vector<std::string>& fixed) {
  for (const auto& [key, option] : {std::pair("precision", "--precision"), {"context", "--context"}})
    if (command.count(option) > 0 && std::ranges::find(fixed, key) != fixed.end())
      throw Error(ExitCode::usage, {.what = "a choice is both fixed and open",
                                    .where = "espalier plan",
                                    .got = fmt::format("{} and --fix {}=...", option, key),
                                    .todo = "leave out one of the two"});
  if (!options.layouts.empty() && options.precisions.size() > 1)
    throw Error(ExitCode::usage,
                {.what = "a layout has one precision",
                 .where = "espalier plan --layout",
                 .got = fmt::format("--precision {}", fmt::join(options.precisions, ",")),
                 .todo = "leave out --precision, and set it in each layout: --layout data=8,precision=fp8"});
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
                                  .todo = "leave out data, or fix tensor and pipeline"});
}

[[noreturn]] void throw_missing(const std::string& option, const std::string& example) {
  throw Error(ExitCode::usage,
              {.what = "an option is missing", .where = "espalier plan", .wanted = option, .todo = example});
}

Precision precision_from(const std::string& name) {
  const std::optional<Precision> precision = parse_priced_precision(name);
  if (!precision)
    throw Error(ExitCode::usage, {.what = "unknown precision",
                                  .got = name,
                                  .wanted = fmt::format("one of {}", fmt::join(priced_precision_names(), ", ")),
                                  .todo = "--precision bf16, or several to choose from: --precision bf16,fp8"});
  return *precision;
}

// The first of bf16, fp16 and fp32 that every device has.
Precision precision_of_all(const std::vector<PlanProblem>& problems) {
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32})
    if (std::all_of(problems.begin(), problems.end(),
                    [&](const PlanProblem& problem) { return problem.cluster.device.has(precision); }))
      return precision;
  throw Error(ExitCode::usage, {.what = "these devices have none of bf16, fp16 and fp32 in common",
                                .where = "espalier plan",
                                .todo = "choose one: --precision fp8"});
}

// Those of the command line, else that of the model's file, else one that all devices have.
std::vector<Precision> precisions_from(const PlanOptions& options, const PlannedModel& planned,
                                       const std::vector<PlanProblem>& problems) {
  std::vector<Precision> precisions;
  for (const std::string& name : options.precisions)
    if (const Precision precision = precision_from(name); std::ranges::find(precisions, precision) == precisions.end())
      precisions.push_back(precision);
  if (options.precisions.empty() && !planned.precision.empty()) {
    if (const std::optional<Precision> precision = parse_priced_precision(planned.precision))
      precisions = {*precision};
    else
      print_note("note: {} computes in {}, which plan cannot estimate\n", planned.name, planned.precision);
  }
  if (precisions.empty())
    precisions = {precision_of_all(problems)};
  for (const PlanProblem& problem : problems)
    for (const Precision precision : precisions)
      if (precisions.size() > 1 && !problem.cluster.device.has(precision))
        print_note("note: {} does not support {}; planned without it\n", problem.cluster.device.name,
                   to_string(precision));
  return precisions;
}

Index tokens_from(const std::string& text) {
  std::optional<Index> tokens = text.empty() ? 0 : parse_count(text);
  if (!tokens && (text.back() == 'b' || text.back() == 't'))  // "300b" is meant as 300B
    tokens = parse_count(text.substr(0, text.size() - 1) + (text.back() == 'b' ? "B" : "T"));
  double number = 0;  // "15e12"
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!tokens && failed == std::errc() && end == text.data() + text.size() && number >= 1 && number < 0x1p62)
    tokens = static_cast<Index>(number);
  if (!tokens || (!text.empty() && *tokens < 1))
    throw Error(ExitCode::usage, {.what = "cannot read the tokens of the run",
                                  .where = "espalier plan",
                                  .got = "--tokens " + text,
                                  .wanted = "a whole number of at least 1, such as 300B, 2T or 15e12",
                                  .todo = "--tokens 300B"});
  return *tokens;
}

// With the devices and the reserve that the command line asks for.
void require_cluster(const Cluster& cluster, const std::string& name) {
  const std::vector<std::string> broken = problems(cluster);
  if (broken.empty())
    return;
  throw Error(ExitCode::usage, {.what = "this cluster is impossible",
                                .where = name,
                                .got = fmt::format("{}", fmt::join(broken, "; ")),
                                .wanted = "a cluster as docs/planner.md describes it",
                                .todo = cluster.reserved_bytes >= cluster.device.memory_bytes ? "lower --reserve-gib"
                                        : name.ends_with(".toml") ? "correct the file, or lower --devices"
                                                                  : "use fewer nodes, or lower --devices"});
}

// The model, its batch and its sequence, with what the command line says of them.
PlannedModel model_from(const PlanOptions& options) {
  PlannedModel planned = planned_model(options.model);
  if (options.batch > 0)
    planned.global_batch = options.batch;
  if (options.sequence_length > 0)
    planned.sequence_length = options.sequence_length;
  if (planned.global_batch < 1)
    throw_missing("--batch SEQUENCES: the global batch of a step",
                  "for example --batch 1536; or global_batch_size under [batch] in the file of --model");
  if (planned.sequence_length < 1)
    throw_missing("--sequence-length TOKENS: a model with rotary positions has no length of its own",
                  "for example --sequence-length 4096");
  Index& positions = planned.model.max_sequence_length;
  if (planned.model.learned_positions() > 0 &&
      positions < planned.sequence_length) {  // it is trained with a longer table
    planned.notes.push_back(fmt::format("{} learns {} positions; the plan uses {}, one for each token of a sequence",
                                        planned.name, positions, planned.sequence_length));
    positions = planned.sequence_length;
  }
  return planned;
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
      print_note("note: --scale names {} twice; the curve has this point once\n", size);
  options.scale = sizes;
}

ClusterLink link_from(const std::string& text) {
  const std::optional<double> bandwidth = parse_quantity(Quantity::bytes_per_second, text);
  if (!bandwidth || *bandwidth < 1e6 || *bandwidth > 1e14)
    throw Error(ExitCode::usage, {.what = "cannot read the link between two clusters",
                                  .where = "espalier plan",
                                  .got = "--link " + text,
                                  .wanted = quantity_examples(Quantity::bytes_per_second) + "; from 1 MB/s to 100 TB/s",
                                  .todo = "--link \"100 Gb/s\": what all devices together can send"});
  return {.bandwidth = *bandwidth};
}

PlanTask task_from(const PlanOptions& options) {
  if (options.model.empty())
    throw_missing("--model NAME or --model CONFIG.toml",
                  "espalier plan --model gpt3-175b --cluster a100-80:128 --batch 1536");
  if (options.clusters.empty())
    throw_missing("--cluster NAME or --cluster FILE.toml",
                  "espalier plan --model gpt3-175b --cluster a100-80:128 --batch 1536");
  const PlannedModel planned = model_from(options);
  for (const std::string& note : planned.notes)
    print_note("note: {}\n", note);
  PlanTask task;
  task.space.global_batch = planned.global_batch;
  for (const std::string& name : options.clusters) {
    PlanProblem problem;
    problem.model = planned.model;
    problem.model_name = planned.name;
    problem.cluster = cluster_from(name);
    if (const int known = problem.cluster.num_devices(); options.devices > 0) {
      problem.cluster = with_devices(problem.cluster, options.devices);
      if (options.devices > known)
        print_note("note: {} has {}; planned with {} on {}\n", name, counted(known, "device"), options.devices,
                   counted(problem.cluster.num_nodes, "node"));
    }
    if (options.reserve_gib >= 0)
      problem.cluster.reserved_bytes = static_cast<Index>(options.reserve_gib * static_cast<double>(gib));
    problem.implementation = espalier_implementation(problem.cluster.device.moves_messages, planned.settings);
    problem.sequence_length = planned.sequence_length;
    problem.num_tokens = tokens_from(options.tokens);
    require_cluster(problem.cluster, name);
    task.problems.push_back(problem);
  }
  task.space.num_devices = options.devices > 0 ? options.devices : task.problems.front().cluster.num_devices();
  task.space.precisions = precisions_from(options, planned, task.problems);
  task.space.tries_context = options.contexts;
  task.space.tries_orders = true;
  if (!options.fixed.empty())
    fix_choices(task.space, fixed_choices(options));
  return task;
}

}  // namespace espalier
