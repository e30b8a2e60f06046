// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_task.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "app/print.hpp"
#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/quantity.hpp"
#include "io/units.hpp"
#include "training/pretrained/model_file.hpp"

namespace espalier {
namespace {

[[noreturn]] void throw_missing(const std::string& option, const std::string& example) {
  throw Error(ExitCode::usage,
              {.what = "an option is missing", .where = "espalier plan", .wanted = option, .todo = example});
}

Precision precision_from(const std::string& name) {
  const std::optional<Precision> precision = parse_priced_precision(name);
  if (!precision)
    throw Error(ExitCode::usage,
                {.what = "unknown precision",
                 .got = name,
                 .wanted = "fp32, tf32, fp16, bf16 or fp8",
                 .todo = "--precision bf16, or several that may be chosen from: --precision bf16,fp8"});
  return *precision;
}

// The first of bf16, fp16 and fp32 that every device has.
Precision precision_of_all(const std::vector<PlanProblem>& problems) {
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32})
    if (std::all_of(problems.begin(), problems.end(),
                    [&](const PlanProblem& problem) { return problem.cluster.device.has(precision); }))
      return precision;
  throw Error(ExitCode::usage, {.what = "no precision of bf16, fp16 and fp32 is one that all these devices have",
                                .where = "espalier plan",
                                .todo = "name one: --precision fp8"});
}

Index tokens_from(const std::string& text) {
  std::optional<Index> tokens = text.empty() ? 0 : parse_count(text);
  double number = 0;  // "15e12"
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!tokens && failed == std::errc() && end == text.data() + text.size() && number >= 1 && number < 0x1p62)
    tokens = static_cast<Index>(number);
  if (!tokens || (!text.empty() && *tokens < 1))
    throw Error(ExitCode::usage, {.what = "cannot read the tokens of the run",
                                  .where = "espalier plan",
                                  .got = "--tokens " + text,
                                  .wanted = "a whole number from 1, as 300B, 2T or 15e12",
                                  .todo = "--tokens 300B"});
  return *tokens;
}

// With the devices and the reserve that the command line asks for.
void require_cluster(const Cluster& cluster, const std::string& name) {
  const std::vector<std::string> broken = problems(cluster);
  if (broken.empty())
    return;
  throw Error(ExitCode::usage, {.what = "this cluster cannot be",
                                .where = name,
                                .got = fmt::format("{}", fmt::join(broken, "; ")),
                                .wanted = "a machine that docs/planner.md describes",
                                .todo = cluster.reserved_bytes >= cluster.device.memory_bytes ? "a lower --reserve-gib"
                                        : name.ends_with(".toml") ? "correct the file, or lower --devices"
                                                                  : "fewer nodes, or a lower --devices"});
}

// The model, its batch and its sequence, with what the command line says of them.
PlannedModel model_from(const PlanOptions& options) {
  PlannedModel planned = planned_model(options.model);
  if (options.batch > 0)
    planned.global_batch = options.batch;
  if (options.sequence_length > 0)
    planned.sequence_length = options.sequence_length;
  if (planned.global_batch < 1)
    throw_missing("--batch SEQUENCES: those of a step, all replicas together",
                  "add --batch 1536, say, or global_batch_size under [batch] of a file for --model");
  if (planned.sequence_length < 1)
    throw_missing("--sequence-length TOKENS: a model with rotary positions has no length of its own",
                  "add --sequence-length 4096, say");
  Index& positions = planned.model.max_sequence_length;
  if (planned.model.learned_positions() > 0 &&
      positions < planned.sequence_length) {  // it is trained with a longer table
    planned.notes.push_back(fmt::format("{} learns {} positions; planned with {}, one for each token of a sequence",
                                        planned.name, positions, planned.sequence_length));
    positions = planned.sequence_length;
  }
  return planned;
}

}  // namespace

ClusterLink link_from(const std::string& text) {
  const std::optional<double> bandwidth = parse_quantity(Quantity::bytes_per_second, text);
  if (!bandwidth || *bandwidth < 1e6 || *bandwidth > 1e14)
    throw Error(ExitCode::usage, {.what = "cannot read the link between two clusters",
                                  .where = "espalier plan",
                                  .got = "--link " + text,
                                  .wanted = quantity_examples(Quantity::bytes_per_second),
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
    problem.implementation = espalier_implementation(problem.cluster.device.moves_messages);
    if (planned.own_attention)
      problem.implementation.cudnn_attention = false;
    problem.sequence_length = planned.sequence_length;
    problem.num_tokens = tokens_from(options.tokens);
    require_cluster(problem.cluster, name);
    task.problems.push_back(problem);
  }
  task.space.num_devices = options.devices > 0 ? options.devices : task.problems.front().cluster.num_devices();
  task.space.precisions.clear();
  for (const std::string& name : options.precisions)
    if (const Precision precision = precision_from(name);
        std::ranges::find(task.space.precisions, precision) == task.space.precisions.end())
      task.space.precisions.push_back(precision);
  if (options.precisions.empty())
    task.space.precisions = {precision_of_all(task.problems)};
  task.space.tries_context = options.contexts;
  task.space.tries_orders = true;
  if (!options.fixed.empty())
    fix_choices(task.space, fixed_choices(options));
  return task;
}

}  // namespace espalier
