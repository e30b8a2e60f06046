// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/plan_config.hpp"
#include "app/plan_task.hpp"
#include "app/print.hpp"
#include "app/rehearse.hpp"
#include "io/file.hpp"
#include "io/own_output.hpp"
#include "models/largest_model.hpp"
#include "planning/layout_limits.hpp"
#include "planning/layout_option.hpp"
#include "planning/memo.hpp"
#include "planning/no_layout.hpp"
#include "planning/plan_text.hpp"

namespace espalier {
namespace {

constexpr OutputMark config_mark{.kind = "a config of `espalier plan`", .begin = plan_config_begin};
constexpr OutputMark memo_mark{
    .kind = "a memo of `espalier plan`", .begin = "# How to train ", .part = "## How it fits in memory"};

Goal goal_of(const PlanOptions& options) {
  Goal goal;
  if (options.most_step_seconds > 0)
    goal.most_step_seconds = options.most_step_seconds;
  if (options.least_tokens_per_second > 0)
    goal.least_tokens_per_second = options.least_tokens_per_second;
  return goal;
}

// Of several clusters on the first: the config is the same on all but for run.cluster, by which `train` predicts its
// step.
void write_config(const PlanOptions& options, const PlanProblem& problem, const LayoutPrice& price) {
  const TrainConfig config = train_config(options.model, options.clusters.front(), options.settings, problem, price);
  write_output(options.config, config_mark, config.toml);
  print_note("wrote {} for `mpiexec -n {} espalier train {}`{}\n", options.config, price.layout.num_devices(),
             options.config, config.to_fill.empty() ? "" : "; before it trains, fill in (or --set):");
  for (const std::string& line : config.to_fill)
    print_note("  {}\n", line);
  if (options.clusters.size() > 1 && !config.cluster.empty())
    print_note(
        "note: its run.cluster is {}, and train predicts step times for it; change it on another of these machines\n",
        config.cluster);
}

void write_memo(const PlanOptions& options, const PlanTask& task, const SearchResult& result,
                const std::vector<ScalePoint>& points, const Goal& goal) {
  write_output(options.memo, memo_mark, memo(task.problems.front(), task.space, result, points, goal));
  print_note("wrote {}\n", options.memo);
}

// One after another; of several each in a directory of its own.
int rehearse_all(const PlanOptions& options, const PlanProblem& problem, const std::vector<LayoutPrice>& prices) {
  for (const LayoutPrice& price : prices)
    require_rehearsable(price.layout);
  std::vector<RehearsedLayout> rehearsed;
  for (const LayoutPrice& price : prices) {
    RehearseOptions each = options.rehearsal;
    if (prices.size() > 1)
      each.directory += fmt::format("/{}-ranks-{}", rehearsed.size() + 1, price.layout.num_devices());
    rehearsed.push_back(rehearse(problem, price, each));
    if (!options.json)
      print_answer("\n{}", rehearsal_text(rehearsed.back(), each));
  }
  if (options.json)
    print_answer("{}", rehearsals_json(rehearsed));
  else if (rehearsed.size() > 1)
    print_answer("\n{}", rehearsed_scaling_text(rehearsed));
  return 0;
}

int plan_scaling(const PlanOptions& options, const PlanTask& task) {
  const PlanProblem& problem = task.problems.front();
  const std::vector<ScalePoint> points = predict_scaling(problem, task.space, options.scale, options.weak);
  const bool has_layout = std::ranges::any_of(points, [](const ScalePoint& point) { return point.price.has_value(); });
  const Goal goal = goal_of(options);
  if (options.json && (options.rehearsal.directory.empty() || !has_layout))
    print_answer("{}", scaling_json(problem, points, goal));
  if (!has_layout)
    throw Error(ExitCode::usage,
                {.what = "no point of the curve has a layout",
                 .where = "espalier plan --scale",
                 .got = fmt::format("{} devices: {}", points.back().num_devices, points.back().limited_by),
                 .todo = "use more devices, another --batch, or fewer fixed choices"});
  if (!options.json)
    print_answer("{}", scaling_text(problem, points, goal));
  require_goals_on_curve(goals_on_curve(points, goal));
  if (options.rehearsal.directory.empty())
    return 0;
  std::vector<LayoutPrice> prices;
  for (const ScalePoint& point : points) {
    if (!point.price)
      throw Error(ExitCode::usage,
                  {.what = "a point of the curve cannot be rehearsed",
                   .where = "espalier plan --scale --rehearse",
                   .got = fmt::format("{} devices: {}", point.num_devices, point.limited_by),
                   .todo = fmt::format("leave {} out of --scale, or change --batch", point.num_devices)});
    prices.push_back(*point.price);
  }
  return rehearse_all(options, problem, prices);
}

constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
constexpr std::size_t max_listed = 8;

// @throws Error (usage) when a search found nothing; programs get that in JSON, managers in a memo.
void require_layout(const PlanOptions& options, const PlanTask& task, const SearchResult& result) {
  if (!result.ranking.empty())
    return;
  const PlanProblem& problem = task.problems.front();
  const ErrorReport report = no_layout_report(problem, task.space, result);
  const std::vector<PlainRejection> plain = plain_rejections(problem, task.space, nullptr);
  if (options.json)
    print_answer("{}", no_layout_json(problem, task.space, report, plain, result, options.top.value_or(all)));
  else
    print_answer("{}\n{}", problem_text(problem, task.space.num_devices, task.space.global_batch),
                 rejections_text(plain, result, options.top.value_or(max_listed)));
  if (!options.memo.empty()) {
    write_output(options.memo, memo_mark, no_layout_memo(problem, task.space, result, report));
    print_note("wrote {}\n", options.memo);
  }
  throw Error(ExitCode::usage, report);
}

void print_search(const PlanOptions& options, const PlanTask& task, const SearchResult& result,
                  const std::vector<ScalePoint>& points, const Goal& goal) {
  const PlanProblem& problem = task.problems.front();
  const LayoutPrice& best = result.ranking.front();
  const std::vector<PlainRejection> plain = plain_rejections(problem, task.space, &best);
  if (options.json) {
    print_answer("{}", search_json(problem, task.space, goal, plain, result, options.top.value_or(all), points));
    return;
  }
  const std::size_t most = options.top.value_or(max_listed);
  const std::string not_built = not_built_text(result);
  const std::string alike = alike_text(problem, result);
  print_answer(
      "{}\n{}{}{}\n{}\n{}", problem_text(problem, task.space.num_devices, task.space.global_batch),
      ranking_text(problem, result.ranking, most), alike.empty() ? "" : fmt::format("   {}\n", alike),
      (not_built.empty() ? "" : fmt::format("   not possible yet: {}\n", not_built)) + fewer_devices_text(result),
      price_text(problem, best), rejections_text(plain, result, most));
  if (!points.empty()) {
    print_answer("\n{}", scaling_text(problem, points, goal));  // with the goals along the curve
    return;
  }
  for (const GoalResult& each : goal_results(best, goal))
    print_answer("goal: {}\n", goal_text(each));
}

// Where nothing that `train` runs fits, the answer is an estimate.
void note_estimates_only(const LayoutSpace& searched, bool found) {
  if (!searched.only_runnable && found)
    print_note("note: no layout that train can run fits here; those below are only estimated\n");
}

int plan_search(const PlanOptions& options, PlanTask task) {
  const PlanProblem& problem = task.problems.front();
  const Goal goal = goal_of(options);
  const std::vector<ScalePoint> points = options.scale.empty()
                                             ? std::vector<ScalePoint>{}
                                             : predict_scaling(problem, task.space, options.scale, options.weak);
  if (!points.empty() && options.devices == 0) {  // memo and config are about one point of the curve
    const ScalePoint& point = point_of_answer(points, goal);
    task.problems.front().cluster = with_devices(problem.cluster, point.num_devices);
    task.space.num_devices = point.num_devices;
    task.space.global_batch = point.global_batch;
  }
  task.space.most_step_seconds =
      seconds_of_goal(goal, static_cast<double>(task.space.global_batch * problem.sequence_length));
  const SearchResult result = recommend_layouts(problem, task.space);
  note_estimates_only(task.space, !result.ranking.empty());
  require_layout(options, task, result);
  const LayoutPrice& best = result.ranking.front();
  const bool rehearses = !options.rehearsal.directory.empty();
  if (!options.json || !rehearses)
    print_search(options, task, result, points, goal);
  if (!options.memo.empty())
    write_memo(options, task, result, points, goal);
  // Memo and answer say by how much a goal is missed; config and rehearsal are of what meets it.
  if (!points.empty())
    require_goals_on_curve(goals_on_curve(points, goal));
  if (points.empty() || !options.config.empty() || rehearses)
    require_goal(best, goal);
  if (!options.config.empty())
    write_config(options, problem, best);
  return rehearses ? rehearse_all(options, problem, {best}) : 0;
}

// A proposal may leave devices idle, which the search never does.
void note_idle_devices(const std::vector<Layout>& layouts, int num_devices, void (*print)(std::string_view)) {
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (const int used = layouts[i].num_devices(); used < num_devices)
      print(fmt::format("note: layout {} uses {} of {} devices, the others stay idle (--devices {} leaves them out)\n",
                        i + 1, used, num_devices, used));
}

int plan_layouts(const PlanOptions& options, const PlanTask& task) {
  const PlanProblem& problem = task.problems.front();
  std::vector<Layout> layouts;
  for (const std::string& text : options.layouts) {
    Layout start;
    start.global_batch = task.space.global_batch;
    start.precision = task.space.precisions.front();
    Layout layout = parse_layout(text, start);
    // As in a config of `train`: without its own degree, data takes the devices that the others leave.
    const std::vector<std::string> keys = layout_keys_in(text, "--layout");
    if (std::ranges::find(keys, "data") == keys.end())
      layout.data = std::max(1, task.space.num_devices / layout.num_devices());
    layouts.push_back(layout);
  }
  std::vector<LayoutPrice> prices;
  for (const Layout& layout : layouts)
    if (why_impossible(problem, layout).empty())
      prices.push_back(price_layout(problem, layout));
  if (prices.empty() && options.json)
    print_answer("{}", layouts_json(problem, task.space, layouts));
  if (prices.empty())
    throw Error(ExitCode::usage,
                {.what = layouts.size() == 1 ? "this layout is impossible" : "none of these layouts is possible",
                 .where = layouts.front().text(),
                 .got = impossible_text(problem, layouts.front()),
                 .todo = "correct --layout, --devices or --batch"});
  const bool rehearses = !options.rehearsal.directory.empty();
  if (options.json) {
    if (rehearses)
      return rehearse_all(options, problem, prices);
    print_answer("{}", layouts_json(problem, task.space, layouts));
    note_idle_devices(layouts, task.space.num_devices, print_text_to_stderr);
    return 0;
  }
  print_answer("{}\n{}", problem_text(problem, task.space.num_devices, task.space.global_batch),
               comparison_text(problem, layouts));
  note_idle_devices(layouts, task.space.num_devices, print_text);
  for (const LayoutPrice& price : prices)
    print_answer("\n{}", price_text(problem, price));
  return rehearses ? rehearse_all(options, problem, prices) : 0;
}

// Clusters are compared by their own best layouts; with --config by one layout for all, of as many devices.
int plan_common(const PlanOptions& options, PlanTask task) {
  const bool wants_config = !options.config.empty();
  const std::vector<PlanProblem>& problems = task.problems;
  const bool are_alike = std::ranges::all_of(problems, [&](const PlanProblem& each) {
    return each.cluster.num_devices() == problems.front().cluster.num_devices();
  });
  if (!are_alike && wants_config)
    throw Error(ExitCode::usage, {.what = "a config is for one number of devices",
                                  .where = "espalier plan",
                                  .got = "--config with clusters that differ in devices",
                                  .todo = "use one --cluster, or --devices for all"});
  const CommonLayout common = compare_machines(problems, task.space, wants_config);
  note_estimates_only(task.space, common.layout.has_value());
  std::size_t fastest = problems.size();
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (common.has(i) &&
        (fastest == problems.size() || common.price(i).tokens_per_second > common.price(fastest).tokens_per_second))
      fastest = i;
  std::optional<JointSearch> joint;
  if (!options.link.empty())
    joint = search_joint_job(problems, task.space, link_from(options.link));
  const double alone = fastest < problems.size() ? common.price(fastest).tokens_per_second : 0;
  const std::string joint_text = joint ? joint_job_text(problems, *joint, alone) : "";
  const bool fails = wants_config ? !common.layout : fastest == problems.size() && !(joint && joint->job);
  const std::optional<ErrorReport> report =
      fails ? std::optional(no_common_layout_report(problems, task.space)) : std::nullopt;
  const Goal goal = goal_of(options);
  if (!options.memo.empty()) {
    write_output(options.memo, memo_mark, common_memo(problems, task.space, common, goal, joint_text));
    print_note("wrote {}\n", options.memo);
  }
  print_answer("{}", options.json ? common_layout_json(problems, task.space, common, goal, joint ? &*joint : nullptr,
                                                       report ? &*report : nullptr)
                                  : common_layout_text(problems, common, goal) + joint_text);
  if (report)
    throw Error(ExitCode::usage, *report);
  if (!common.layout) {
    if (fastest < problems.size())
      require_goal(common.price(fastest), goal, machine_name(problems, fastest));
    return 0;
  }
  // The slowest machine says what all of them can reach.
  const auto slowest = std::ranges::max_element(common.prices, {}, &LayoutPrice::step_seconds);
  require_goal(*slowest, goal, problems[static_cast<std::size_t>(slowest - common.prices.begin())].cluster.name);
  write_config(options, problems.front(), common.prices.front());
  return 0;
}

int plan(const PlanOptions& options) {
  if (!options.config.empty())
    require_own_output(options.config, config_mark);
  if (!options.memo.empty())
    require_own_output(options.memo, memo_mark);
  const PlanTask task = task_from(options);
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
  CLI::App* const command = app.add_subcommand("plan", "Recommend a layout for a model, a machine and a batch");
  command
      ->add_option("--model", options->model,
                   "preset (gpt3-175b, llama3-8b, ...), or a config file of train: its model, batch and precision")
      ->type_name("NAME|FILE");
  command
      ->add_option("--cluster", options->clusters,
                   "preset and number of nodes (a100-80:16 or, with devices per node, a100-80:16x8), or a TOML file; "
                   "repeat it to compare clusters; --cluster ? lists the presets")
      ->type_name("NAME|FILE");
  command
      ->add_option("--link", options->link,
                   "also plan one job across two clusters: the bandwidth between them, of all devices together, such "
                   "as \"100 Gb/s\"")
      ->type_name("RATE");
  command->add_option("--devices", options->devices, "devices to use")->check(between(1, most_devices));
  command->add_option("--batch", options->batch, "global batch, sequences")->check(between(1, LargestModel::batch));
  command->add_option("--sequence-length", options->sequence_length, "tokens of a sequence")
      ->check(between(1, LargestModel::positions));
  command
      ->add_option("--tokens", options->tokens,
                   "tokens of the whole run, such as 300B: print days, device-hours, cost and energy (from price and "
                   "power in the cluster file)")
      ->type_name("COUNT");
  command
      ->add_option("--precision", options->precisions,
                   fmt::format("precisions to choose from: {}", fmt::join(priced_precision_names(), ", ")))
      ->delimiter(',');
  command->add_option("--fix", options->fixed, "fixed choices: tensor=8,recompute=full,...")
      ->type_name("KEY=VALUE,...");
  command
      ->add_option("--layout", options->layouts,
                   "estimate this layout: tensor=4,pipeline=2,... (data takes the rest); repeat it to compare layouts")
      ->type_name("KEY=VALUE,...");
  command->add_option("--scale", options->scale, "predict the best layout at each number of devices")
      ->delimiter(',')
      ->check(between(1, most_devices));
  command->add_flag("--weak", options->weak, "let the batch grow with the devices of --scale");
  command->add_option("--max-step-seconds", options->most_step_seconds, "goal; exits with 2 if it is missed")
      ->check(float_between(1e-9, 1e9));
  command->add_option("--min-tokens-per-second", options->least_tokens_per_second, "goal; exits with 2 if it is missed")
      ->check(float_between(1e-9, 1e18));
  command->add_option("--reserve-gib", options->reserve_gib, "device memory to keep free, in GiB")
      ->check(float_between(0, 1e6));
  command->add_flag("--context", options->contexts, "also try context parallelism");
  command->add_option("--top", options->top, "number of layouts to list; default 8, with --json all")
      ->check(between(1, 1000));
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--memo", options->memo, "write a memo that explains the recommendation")->type_name("FILE.md");
  command->add_option("--config", options->config, "write a config for train")->type_name("FILE.toml");
  command
      ->add_option("--set", options->settings,
                   "with --config: keys that the plan does not decide, such as data.train=train.bin run.steps=1000")
      ->type_name("SECTION.KEY=VALUE");
  command
      ->add_option("--rehearse", options->rehearsal.directory,
                   "run the layout (with --scale: each) on this machine, with emulated operations and links; files go "
                   "into this directory")
      ->type_name("DIRECTORY")
      ->expected(0, 1)
      ->default_str("runs/rehearsal");
  command
      ->add_option("--rehearse-seconds", options->rehearsal.seconds, "duration of the steps of a rehearsal, in seconds")
      ->check(float_between(1, 36000));
  command->add_option("--mpiexec", options->rehearsal.mpiexec, "launcher of the ranks of a rehearsal")
      ->type_name("COMMAND");
  add_gpu_options(*command);
  command->callback([options, command, &chosen] {
    chosen = {[options, command](Runtime*) {
                check_options(*command, *options);
                drop_repeated_sizes(*options);
                return plan(*options);
              },
              false};
  });
}

}  // namespace espalier
