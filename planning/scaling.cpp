// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/scaling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "planning/layout_limits.hpp"
#include "planning/no_layout.hpp"

namespace espalier {
namespace {

constexpr double straight = 0.99;  // efficiencies between these two need no explanation
constexpr double steep = 1.01;

void require_machine(const Cluster& cluster, int devices) {
  const Cluster machine = with_devices(cluster, devices);
  if (const std::vector<std::string> broken = problems(machine); !broken.empty())
    throw Error(ExitCode::usage,
                {.what = fmt::format("this cluster cannot have {} devices", devices),
                 .where = cluster.name,
                 .got = fmt::format("{} nodes of {}; {}", machine.num_nodes, machine.devices_per_node, broken.front()),
                 .wanted = "a cluster file that describes the larger machine",
                 .todo = "add the missing part to the file ([network_link] bandwidth = \"25 GB/s\", latency = \"10 "
                         "us\"), or scale to "
                         "fewer devices"});
}

// Device-seconds of a sequence.
double cost(const ScalePoint& point, std::size_t phase) {
  return point.price->seconds.seconds[phase] * point.num_devices / static_cast<double>(point.global_batch);
}

// The phase of which a sequence costs most more than on the first point, or (`sign` -1) most less.
struct PhaseChange {
  std::size_t phase = 0;
  double cost = 0;
  double all = 0;  // of all phases that have changed in this direction

  const char* name() const { return to_string(static_cast<Phase>(phase)); }
  std::string shares(const ScalePoint& first, const ScalePoint& now) const {
    const auto share = [&](const ScalePoint& point) {
      return 100 * point.price->seconds.seconds[phase] / point.price->step_seconds;
    };
    return fmt::format("({:.1f} % of the step, was {:.1f} %)", share(now), share(first));
  }
};

PhaseChange largest_change(const ScalePoint& first, const ScalePoint& now, double sign) {
  PhaseChange largest;
  for (std::size_t phase = 0; phase < num_phases; ++phase) {
    const double change = sign * (cost(now, phase) - cost(first, phase));
    largest.all += std::max(0.0, change);
    if (change > largest.cost) {
      largest.phase = phase;
      largest.cost = change;
    }
  }
  return largest;
}

// Of the layout of a larger point, with as many replicas fewer as the first point has devices fewer.
std::string why_not_on_the_first(const PlanProblem& problem, const ScalePoint& first, const ScalePoint& now) {
  Layout same = now.price->layout;
  const int shard = same.num_devices() / same.data;
  if (first.num_devices < shard)
    return fmt::format("; {} devices are too few for the {} shards of this layout", first.num_devices, shard);
  if (first.num_devices % shard != 0)
    return "";
  same.data = first.num_devices / shard;
  same.global_batch = first.global_batch;
  PlanProblem machine = problem;
  machine.cluster = with_devices(problem.cluster, first.num_devices);
  if (!why_impossible(machine, same).empty() ||
      why_too_large(machine, price_layout(machine, same, Effort::estimate)).empty())
    return "";
  return fmt::format("; this layout with {} instead of {} replicas does not fit on {} devices", same.data,
                     now.price->layout.data, first.num_devices);
}

std::string point_text(const ScalePoint& reference, const ScalePoint& point, const PlanProblem& problem) {
  if (point.efficiency < straight)
    return what_limits(reference, point);
  return point.efficiency > steep ? what_gains(problem, reference, point) : "nothing";
}

}  // namespace

std::string what_gains(const PlanProblem& problem, const ScalePoint& first, const ScalePoint& now) {
  const PhaseChange fallen = largest_change(first, now, -1);
  if (fallen.cost <= 0)
    return "nothing";
  return fmt::format("above 100 %: {} takes {:.1f} % fewer device-seconds per sequence{}", fallen.name(),
                     100 * fallen.cost / cost(first, fallen.phase), why_not_on_the_first(problem, first, now));
}

std::string what_limits(const ScalePoint& first, const ScalePoint& now) {
  const PhaseChange grown = largest_change(first, now, 1);
  if (grown.cost <= 0)
    return "nothing";
  return fmt::format("{}: {:.0f} % of the loss {}", grown.name(), 100 * grown.cost / grown.all,
                     grown.shares(first, now));
}

std::vector<ScalePoint> predict_scaling(const PlanProblem& problem, const LayoutSpace& space,
                                        const std::vector<int>& num_devices, bool weak) {
  std::vector<ScalePoint> points;
  const ScalePoint* first = nullptr;
  points.reserve(num_devices.size());
  for (const int devices : num_devices)
    require_machine(problem.cluster, devices);
  for (const int devices : num_devices) {
    LayoutSpace here = space;
    here.num_devices = devices;
    here.data.reset();
    if (weak)
      here.global_batch = std::max<Index>(1, space.global_batch * devices / num_devices.front());
    PlanProblem machine = problem;
    machine.cluster = with_devices(problem.cluster, devices);
    SearchResult result = search_runnable(machine, here, 6);
    ScalePoint point{.num_devices = devices, .global_batch = here.global_batch, .price = {}, .limited_by = {}};
    if (!result.ranking.empty()) {
      point.price = std::move(result.ranking.front());
      const ScalePoint& reference = first ? *first : point;
      point.efficiency =
          (point.price->tokens_per_second / devices) / (reference.price->tokens_per_second / reference.num_devices);
      point.limited_by = point_text(reference, point, problem);
    } else {
      point.limited_by = why_no_layout(machine, here, result);
    }
    points.push_back(std::move(point));
    if (!first && points.back().price)
      first = &points.back();
  }
  return points;
}

std::vector<CurveGoal> goals_on_curve(const std::vector<ScalePoint>& points, const Goal& goal) {
  std::vector<const ScalePoint*> by_devices;
  for (const ScalePoint& point : points)
    by_devices.push_back(&point);
  std::ranges::sort(by_devices, {}, &ScalePoint::num_devices);
  std::vector<CurveGoal> goals;
  for (const ScalePoint* const point : by_devices) {
    if (!point->price) {
      for (CurveGoal& each : goals)
        each.holds_from.reset();
      continue;
    }
    const std::vector<GoalResult> results = goal_results(*point->price, goal);
    goals.resize(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      CurveGoal& each = goals[i];
      each.asked = results[i].asked;
      if (each.nearest_devices == 0 || results[i].margin > each.nearest.margin) {
        each.nearest = results[i];
        each.nearest_devices = point->num_devices;
      }
      if (!results[i].is_met())
        each.holds_from.reset();
      else if (!each.holds_from)
        each.holds_from = point->num_devices;
      if (results[i].is_met())
        each.holds_at.push_back(point->num_devices);
    }
  }
  return goals;
}

const ScalePoint& point_of_answer(const std::vector<ScalePoint>& points, const Goal& goal) {
  const ScalePoint* largest = nullptr;
  for (const ScalePoint& point : points)
    if (point.price && (largest == nullptr || point.num_devices > largest->num_devices))
      largest = &point;
  if (largest == nullptr)
    return points.back();
  const std::vector<CurveGoal> goals = goals_on_curve(points, goal);
  const ScalePoint* answer = nullptr;
  for (const ScalePoint& point : points)
    if ((answer == nullptr || point.num_devices < answer->num_devices) &&
        std::ranges::all_of(
            goals, [&](const CurveGoal& each) { return std::ranges::count(each.holds_at, point.num_devices) > 0; }))
      answer = &point;
  return answer == nullptr || goals.empty() ? *largest : *answer;
}

std::string curve_goal_text(const CurveGoal& goal) {
  if (goal.holds_from)
    return fmt::format("{}: holds from {} devices on", goal.asked, *goal.holds_from);
  if (!goal.holds_at.empty())
    return fmt::format("{}: holds at {} devices, but not at every larger size", goal.asked,
                       fmt::join(goal.holds_at, ", "));
  return fmt::format("{}: holds at none of these; the best is {}, on {} devices", goal.asked, goal.nearest.reached,
                     goal.nearest_devices);
}

void require_goals_on_curve(const std::vector<CurveGoal>& goals) {
  for (const CurveGoal& goal : goals)
    if (goal.holds_at.empty())
      throw Error(ExitCode::usage,
                  {.what = "no point of the curve is that fast",
                   .where = "espalier plan --scale",
                   .got = goal.asked + " wanted",
                   .wanted = fmt::format("what can be reached: the best is {}, on {} devices", goal.nearest.reached,
                                         goal.nearest_devices),
                   .todo = fmt::format("{}, more devices in --scale, or another --batch", goal.nearest.nearest)});
}

}  // namespace espalier
