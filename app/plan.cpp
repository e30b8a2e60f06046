// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/plan_config.hpp"
#include "app/plan_options.hpp"
#include "app/rehearse.hpp"
#include "io/file.hpp"
#include "planning/case_report.hpp"
#include "planning/memo.hpp"
#include "planning/plan_text.hpp"

namespace espalier {
namespace {

struct Task {
  std::vector<PlanProblem> problems;  // one a machine
  LayoutSpace space;
};

int plan_cases(const PlanOptions& options) {
  std::vector<Cluster> calibrated;
  for (const std::string& cluster : options.clusters)
    calibrated.push_back(cluster_from(cluster));
  std::vector<PricedCase> cases;
  for (PublishedCase& published : read_cases(read_file(options.cases, ExitCode::data), options.cases, calibrated))
    cases.push_back(price_case(std::move(published)));
  fmt::print("{}", options.json ? case_report_json(cases) : case_report(cases));
  return 0;
}

[[noreturn]] void throw_missing(const std::string& option, const std::string& example) {
  throw Error(ExitCode::usage,
              {.what = "an option is missing", .where = "espalier plan", .wanted = option, .todo = example});
}

Precision precision_from(const std::string& name) {
  const std::optional<Precision> precision = parse_precision(name);
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

Task task_from(const PlanOptions& options) {
  if (options.model.empty())
    throw_missing("--model NAME or --model CONFIG.toml",
                  "espalier plan --model gpt3-175b --cluster a100-80:128 --batch 1536");
  if (options.clusters.empty())
    throw_missing("--cluster NAME or --cluster FILE.toml",
                  "espalier plan --model gpt3-175b --cluster a100-80:128 --batch 1536");
  const PlannedModel planned = planned_model(options.model);
  Task task;
  task.space.global_batch = options.batch > 0 ? options.batch : planned.global_batch;
  if (task.space.global_batch < 1)
    throw_missing("--batch SEQUENCES: those of a step, all replicas together",
                  "add --batch 1536, say, or name a config that has a batch");
  for (const std::string& name : options.clusters) {
    PlanProblem problem;
    problem.model = planned.model;
    problem.cluster = cluster_from(name);
    if (options.devices > 0)
      problem.cluster = with_devices(problem.cluster, options.devices);
    if (options.reserve_gib >= 0)
      problem.cluster.reserved_bytes = static_cast<Index>(options.reserve_gib * (1 << 30));
    problem.implementation = espalier_implementation();
    problem.sequence_length = options.sequence_length > 0 ? options.sequence_length : planned.sequence_length;
    if (problem.sequence_length < 1)
      throw_missing("--sequence-length TOKENS: a model with rotary positions has no length of its own",
                    "add --sequence-length 4096, say");
    if (const std::vector<std::string> broken = problems(problem.cluster); !broken.empty())
      throw Error(ExitCode::usage, {.what = "this cluster cannot be",
                                    .where = name,
                                    .got = fmt::format("{}", fmt::join(broken, "; ")),
                                    .wanted = "a machine that docs/planner.md describes",
                                    .todo = "correct the file, or lower --devices or --reserve-gib"});
    task.problems.push_back(problem);
  }
  task.space.num_devices = options.devices > 0 ? options.devices : num_devices(task.problems);
  task.space.precisions.clear();
  for (const std::string& name : options.precisions)
    task.space.precisions.push_back(precision_from(name));
  if (options.precisions.empty())
    task.space.precisions = {precision_of_all(task.problems)};
  task.space.tries_context = options.contexts;
  task.space.tries_orders = true;
  task.space.only_runnable = options.runnable;
  if (!options.fixed.empty())
    fix_choices(task.space, options.fixed);
  return task;
}

void write_outputs(const PlanOptions& options, const Task& task, const SearchResult& result) {
  const PlanProblem& problem = task.problems.front();
  if (!options.memo.empty()) {
    const std::vector<ScalePoint> points = options.scale.empty()
                                               ? std::vector<ScalePoint>{}
                                               : predict_scaling(problem, task.space, options.scale, options.weak);
    write_file_atomically(options.memo, memo(problem, task.space, result, points));
    fmt::print(stderr, "wrote {}\n", options.memo);
  }
  if (!options.config.empty()) {
    write_file_atomically(options.config, train_config(options.model, problem, result.ranking.front().layout));
    fmt::print(stderr, "wrote {}\n", options.config);
  }
}

// One after another; of several each in a directory of its own.
int rehearse_all(const PlanOptions& options, const PlanProblem& problem, const std::vector<LayoutPrice>& prices) {
  for (const LayoutPrice& price : prices)
    require_rehearsable(problem, price.layout);
  std::vector<RehearsedLayout> rehearsed;
  for (const LayoutPrice& price : prices) {
    RehearseOptions each = options.rehearsal;
    if (prices.size() > 1)
      each.directory += fmt::format("/{}-ranks-{}", rehearsed.size() + 1, price.layout.num_devices());
    rehearsed.push_back(rehearse(problem, price, each));
    if (!options.json)
      fmt::print("\n{}", rehearsal_text(rehearsed.back(), each));
  }
  if (options.json)
    fmt::print("{}", rehearsals_json(rehearsed));
  else if (rehearsed.size() > 1)
    fmt::print("\n{}", rehearsed_scaling_text(rehearsed));
  return 0;
}

int plan_scaling(const PlanOptions& options, const Task& task) {
  const PlanProblem& problem = task.problems.front();
  const std::vector<ScalePoint> points = predict_scaling(problem, task.space, options.scale, options.weak);
  if (std::none_of(points.begin(), points.end(), [](const ScalePoint& point) { return point.price.has_value(); }))
    throw Error(ExitCode::usage,
                {.what = "no point of the curve has a layout",
                 .where = "espalier plan --scale",
                 .got = fmt::format("{} devices: {}", points.back().num_devices, points.back().what_bends),
                 .todo = "more devices, another --batch, or fewer fixed choices"});
  if (options.rehearsal.directory.empty() || !options.json)
    fmt::print("{}", options.json ? scaling_json(problem, points) : scaling_text(points));
  if (options.rehearsal.directory.empty())
    return 0;
  std::vector<LayoutPrice> prices;
  for (const ScalePoint& point : points) {
    if (!point.price)
      throw Error(ExitCode::usage,
                  {.what = "a point of the curve cannot be rehearsed",
                   .where = "espalier plan --scale --rehearse",
                   .got = fmt::format("{} devices: {}", point.num_devices, point.what_bends),
                   .todo = fmt::format("leave {} out of --scale, or change --batch", point.num_devices)});
    prices.push_back(*point.price);
  }
  return rehearse_all(options, problem, prices);
}

int plan_search(const PlanOptions& options, const Task& task) {
  const PlanProblem& problem = task.problems.front();
  const SearchResult result = search_layouts(problem, task.space);
  Goal goal;
  if (options.most_step_seconds > 0)
    goal.most_step_seconds = options.most_step_seconds;
  if (options.least_tokens_per_second > 0)
    goal.least_tokens_per_second = options.least_tokens_per_second;
  require_goal(problem, result, goal);
  write_outputs(options, task, result);
  if (options.json && !options.rehearsal.directory.empty())
    return rehearse_all(options, problem, {result.ranking.front()});
  const std::vector<PlainRejection> plain = plain_rejections(problem, task.space, result.ranking.front());
  if (options.json) {
    fmt::print("{}", search_json(problem, plain, result));
    return 0;
  }
  fmt::print("{}\n{}\n{}\n{}", problem_text(problem, task.space.num_devices, task.space.global_batch),
             ranking_text(problem, result.ranking, options.top), price_text(problem, result.ranking.front()),
             rejections_text(plain, result, options.top));
  if (!options.rehearsal.directory.empty())
    return rehearse_all(options, problem, {result.ranking.front()});
  return 0;
}

int plan_layouts(const PlanOptions& options, const Task& task) {
  const PlanProblem& problem = task.problems.front();
  std::vector<PlanLayout> layouts;
  for (const std::string& text : options.layouts) {
    PlanLayout start;
    start.global_batch = task.space.global_batch;
    start.precision = task.space.precisions.front();
    layouts.push_back(parse_plan_layout(text, start));
  }
  std::vector<LayoutPrice> prices;
  for (const PlanLayout& layout : layouts)
    if (why_impossible(problem, layout).empty())
      prices.push_back(price_layout(problem, layout));
  if (prices.empty())
    throw Error(ExitCode::usage,
                {.what = layouts.size() == 1 ? "this layout is impossible" : "none of these layouts is possible",
                 .where = layouts.front().text(),
                 .got = why_impossible(problem, layouts.front()),
                 .todo = "correct --layout, --devices or --batch"});
  const bool rehearses = !options.rehearsal.directory.empty() && !prices.empty();
  if (options.json) {
    if (rehearses)
      return rehearse_all(options, problem, prices);
    fmt::print("{}", layouts_json(problem, layouts));
    return 0;
  }
  fmt::print("{}\n{}", problem_text(problem, task.space.num_devices, task.space.global_batch),
             comparison_text(problem, layouts));
  for (const LayoutPrice& price : prices)
    fmt::print("\n{}", price_text(problem, price));
  return rehearses ? rehearse_all(options, problem, prices) : 0;
}

// Each machine's own search says why it has none; where all have one, no single layout suits all.
[[noreturn]] void throw_no_common_layout(const Task& task) {
  for (const PlanProblem& problem : task.problems)
    try {
      require_goal(problem, search_layouts(problem, task.space), {});
    } catch (const Error& error) {
      ErrorReport report = error.report();
      report.where = problem.cluster.name;
      throw Error(error.code(), report);
    }
  throw Error(ExitCode::usage, {.what = "no layout fits all of these machines",
                                .where = "espalier plan",
                                .got = "each has layouts of its own, but none in common",
                                .todo = "one --cluster at a time shows them"});
}

int plan_common(const PlanOptions& options, const Task& task) {
  const CommonLayout common = search_common_layout(task.problems, task.space);
  if (!common.layout)
    throw_no_common_layout(task);
  fmt::print("{}",
             options.json ? common_layout_json(task.problems, common) : common_layout_text(task.problems, common));
  return 0;
}

int plan(const PlanOptions& options) {
  if (!options.cases.empty())
    return plan_cases(options);
  const Task task = task_from(options);
  if (!options.layouts.empty())
    return plan_layouts(options, task);
  if (task.problems.size() > 1)
    return plan_common(options, task);
  if (!options.scale.empty() && options.memo.empty())
    return plan_scaling(options, task);
  return plan_search(options, task);
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* const command = app.add_subcommand("plan", "Recommends a layout for a model, a machine and a batch");
  command->add_option("--model", options->model, "Preset (gpt3-175b, llama3-8b, ...) or a config")
      ->type_name("NAME|FILE");
  command
      ->add_option("--cluster", options->clusters,
                   "Preset with its nodes (a100-80:16) or TOML file; of several, one layout for all")
      ->type_name("NAME|FILE");
  command->add_option("--devices", options->devices, "Devices to use")->check(between(1, 1 << 24));
  command->add_option("--batch", options->batch, "Global batch, sequences")->check(at_least(1));
  command->add_option("--sequence-length", options->sequence_length, "Tokens of a sequence")->check(at_least(1));
  command->add_option("--precision", options->precisions, "fp32, tf32, fp16, bf16, fp8: what may be chosen")
      ->delimiter(',');
  command->add_option("--fix", options->fixed, "Fixed choices: tensor=8,recompute=full,...")
      ->type_name("KEY=VALUE,...");
  command->add_option("--layout", options->layouts, "Prices this: data=8,tensor=4,pipeline=2,...; several are compared")
      ->type_name("KEY=VALUE,...");
  command->add_option("--scale", options->scale, "Predicts the best layout at each number of devices")
      ->delimiter(',')
      ->check(between(1, 1 << 24));
  command->add_flag("--weak", options->weak, "The batch grows with the devices of --scale");
  command->add_option("--max-step-seconds", options->most_step_seconds, "Goal")->check(real_between(1e-9, 1e9));
  command->add_option("--min-tokens-per-second", options->least_tokens_per_second, "Goal")
      ->check(real_between(1e-9, 1e18));
  command->add_option("--reserve-gib", options->reserve_gib, "Device memory kept back")->check(real_between(0, 1e6));
  command->add_flag("--context", options->contexts, "Tries context parallelism as well");
  command->add_flag("--runnable", options->runnable, "Only what train runs today");
  command->add_option("--top", options->top, "Layouts to list")->check(between(1, 1000));
  command->add_flag("--json", options->json, "For programs");
  command->add_option("--memo", options->memo, "Writes a recommendation")->type_name("FILE.md");
  command->add_option("--config", options->config, "Writes the config that train runs")->type_name("FILE.toml");
  command->add_option("--cases", options->cases, "Predicts every row of a table of published configurations")
      ->type_name("FILE.csv");
  command
      ->add_option("--rehearse", options->rehearsal.directory,
                   "Runs the layout (of --scale, each) on as many ranks, with priced operations and links, in this "
                   "directory")
      ->type_name("DIRECTORY")
      ->expected(0, 1)
      ->default_str("runs/rehearsal");
  command->add_option("--rehearse-seconds", options->rehearsal.seconds, "Of the steps of a rehearsal")
      ->check(real_between(1, 36000));
  command->add_option("--mpiexec", options->rehearsal.mpiexec, "Starts its ranks")->type_name("COMMAND");
  command->callback([options, command, &chosen] {
    chosen = {[options, command](Runtime*) {
                refuse_without_effect(*command, *options);
                return plan(*options);
              },
              false};
  });
}

}  // namespace espalier
