// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "planning/no_layout.hpp"

namespace espalier {
namespace {

constexpr double straight = 0.99;  // efficiency above which there is nothing to explain

void require_machine(const Cluster& cluster, int devices) {
  const Cluster machine = with_devices(cluster, devices);
  if (const std::vector<std::string> broken = problems(machine); !broken.empty())
    throw Error(
        ExitCode::usage,
        {.what = fmt::format("this cluster cannot have {} devices", devices),
         .where = cluster.name,
         .got = fmt::format("{} nodes of {}; {}", machine.num_nodes, machine.devices_per_node, broken.front()),
         .wanted = "a cluster that describes what it is to be scaled to",
         .todo = "add it to the file ([network_link] bandwidth = \"25 GB/s\", latency = \"10 us\"), or scale to "
                 "fewer devices"});
}

}  // namespace

std::string what_bends(const ScalePoint& first, const ScalePoint& now) {
  const auto cost = [](const ScalePoint& point, std::size_t phase) {  // device-seconds of a sequence
    return point.price->seconds[phase] * point.num_devices / static_cast<double>(point.global_batch);
  };
  std::size_t most = 0;
  double lost = 0;
  double most_lost = 0;
  for (std::size_t phase = 0; phase < num_plan_phases; ++phase) {
    const double growth = cost(now, phase) - cost(first, phase);
    lost += std::max(0.0, growth);
    if (growth > most_lost) {
      most = phase;
      most_lost = growth;
    }
  }
  if (most_lost <= 0)
    return "nothing";
  return fmt::format("{}: {:.0f} % of what is lost ({:.1f} % of the step, was {:.1f} %)",
                     to_string(static_cast<PlanPhase>(most)), 100 * most_lost / lost,
                     100 * now.price->seconds[most] / now.price->step_seconds,
                     100 * first.price->seconds[most] / first.price->step_seconds);
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
    SearchResult result = search_layouts(machine, here, 6);
    ScalePoint point{.num_devices = devices, .global_batch = here.global_batch, .price = {}, .what_bends = {}};
    if (!result.ranking.empty()) {
      point.price = std::move(result.ranking.front());
      const ScalePoint& reference = first ? *first : point;
      point.efficiency =
          (point.price->tokens_per_second / devices) / (reference.price->tokens_per_second / reference.num_devices);
      point.what_bends = point.efficiency > straight ? "nothing" : what_bends(reference, point);
    } else {
      point.what_bends = why_no_layout(machine, here, result);
    }
    points.push_back(std::move(point));
    if (!first && points.back().price)
      first = &points.back();
  }
  return points;
}

CommonLayout search_common_layout(const std::vector<PlanProblem>& problems, const LayoutSpace& space) {
  CommonLayout common;
  for (const PlanProblem& problem : problems) {
    SearchResult own = search_layouts(problem, space);
    if (own.ranking.empty())
      return common;
    common.bests.push_back(std::move(own.ranking.front()));
  }
  double smallest = 0;
  for (const PlanLayout& layout : enumerate_layouts(problems.front(), space)) {
    double worst = 0;
    bool fits = true;
    for (std::size_t i = 0; i < problems.size() && fits; ++i) {
      fits = why_impossible(problems[i], layout).empty();
      if (!fits)
        break;
      const LayoutPrice price = price_layout(problems[i], layout, Effort::estimate);
      fits = why_too_large(problems[i], price).empty();
      worst = std::max(worst, price.step_seconds / common.bests[i].step_seconds);
    }
    if (fits && (!common.layout || worst < smallest)) {
      common.layout = layout;
      smallest = worst;
    }
  }
  if (common.layout)
    for (const PlanProblem& problem : problems)
      common.prices.push_back(price_layout(problem, *common.layout));
  return common;
}

}  // namespace espalier
