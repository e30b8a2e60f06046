// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/runnable.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "models/layout_section.hpp"

namespace espalier {
namespace {

std::vector<std::string> lacks_of_layout(const Layout& layout) {
  std::vector<std::string> lacks;
  if (layout.context > 1)
    lacks.emplace_back("train has no context parallelism yet");
  if (std::ranges::find(compute_types, layout.precision) == compute_types.end())
    lacks.push_back(fmt::format("train does not compute in {} yet", to_string(layout.precision)));
  if (!has_list(layout.schedule))
    lacks.push_back(fmt::format("train has no schedule {} yet", to_string(layout.schedule)));
  return lacks;
}

}  // namespace

std::string why_not_runnable(const Layout& layout) {
  return fmt::format("{}", fmt::join(lacks_of_layout(layout), "; "));
}

std::vector<std::string> what_lacks(const PlanProblem& problem, const Layout& layout) {
  std::vector<std::string> lacks = lacks_of_layout(layout);
  const std::string of_model = problem.implementation.experts.count > 0 ? "train has no mixture of experts yet"
                                                                        : why_not_trainable(problem.model);
  if (!of_model.empty())
    lacks.insert(lacks.begin(), of_model);
  if (const Accelerator& device = problem.cluster.device; !device.has_build)
    lacks.insert(lacks.begin(), fmt::format("train does not run on {} yet, only on CPUs and NVIDIA GPUs", device.name));
  return lacks;
}

std::string why_not_runnable(const PlanProblem& problem, const Layout& layout) {
  return fmt::format("{}", fmt::join(what_lacks(problem, layout), "; "));
}

std::string what_else_lacks(const Layout& layout, const Layout& other) {
  std::vector<std::string> lacks = lacks_of_layout(layout);
  const std::vector<std::string> known = lacks_of_layout(other);
  std::erase_if(lacks, [&](const std::string& each) { return std::ranges::find(known, each) != known.end(); });
  return fmt::format("{}", fmt::join(lacks, "; "));
}

}  // namespace espalier
