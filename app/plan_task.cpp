// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_task.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/print.hpp"
#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "training/model_file.hpp"

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

// One layout has so many ranks on each machine.
int num_devices(const std::vector<PlanProblem>& problems) {
  const int devices = problems.front().cluster.num_devices();
  for (const PlanProblem& problem : problems)
    if (problem.cluster.num_devices() != devices)
      throw Error(ExitCode::usage,
                  {.what = "these machines have different numbers of devices",
                   .where = "espalier plan",
                   .got = fmt::format("{} has {}, {} has {}", problems.front().cluster.name, devices,
                                      problem.cluster.name, problem.cluster.num_devices()),
                   .wanted = "as many on each: one layout is asked for all",
                   .todo = fmt::format("--devices {}", std::min(devices, problem.cluster.num_devices()))});
  return devices;
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
    require_cluster(problem.cluster, name);
    task.problems.push_back(problem);
  }
  task.space.num_devices = options.devices > 0 ? options.devices : num_devices(task.problems);
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
