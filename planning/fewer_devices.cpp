// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/fewer_devices.hpp"

#include <bit>
#include <utility>
#include <vector>

#include "planning/interval.hpp"
#include "planning/search.hpp"

namespace espalier {
namespace {

// Whole nodes, and a power of two, of a number of devices that is neither.
std::vector<int> rounder_numbers(const PlanProblem& problem, int devices) {
  const int node = problem.cluster.devices_per_node;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(devices)));
  if (devices % node == 0 || power == devices)
    return {};
  std::vector<int> numbers{power};
  if (devices > node)
    numbers.push_back(devices / node * node);
  return numbers;
}

}  // namespace

std::optional<LayoutPrice> faster_on_fewer(const PlanProblem& problem, const LayoutSpace& space,
                                           const LayoutPrice& best) {
  std::optional<LayoutPrice> fastest;
  for (const int devices : rounder_numbers(problem, space.num_devices)) {
    PlanProblem smaller = problem;
    smaller.cluster = with_devices(problem.cluster, devices);
    LayoutSpace own = space;
    own.num_devices = devices;
    SearchResult result = search_recommended(smaller, own);
    const double least = (1 + step_resolution(problem.cluster)) * (fastest ? *fastest : best).tokens_per_second;
    if (!result.ranking.empty() && result.ranking.front().tokens_per_second > least)
      fastest = std::move(result.ranking.front());
  }
  return fastest;
}

}  // namespace espalier
