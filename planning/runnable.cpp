// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/runnable.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "models/layout_rules.hpp"

namespace espalier {
namespace {

std::vector<std::string> lacks_of_layout(Index num_layers, const Layout& layout) {
  std::vector<std::string> lacks;
  if (layout.context > 1)
    lacks.emplace_back("train has no context parallelism yet");
  if (layout.precision == Precision::fp8 || layout.precision == Precision::tf32)
    lacks.push_back(fmt::format("train does not compute in {} yet", to_string(layout.precision)));
  if (!has_list(layout.schedule))
    lacks.push_back(fmt::format("train has no list for the schedule {} yet", to_string(layout.schedule)));
  if (const std::string parts = why_too_many_parts(num_layers, layout); !parts.empty())
    lacks.push_back("train wants a layer on every part: " + parts);
  return lacks;
}

}  // namespace

std::string why_not_runnable(Index num_layers, const Layout& layout) {
  return fmt::format("{}", fmt::join(lacks_of_layout(num_layers, layout), "; "));
}

std::string why_not_runnable(const PlanProblem& problem, const Layout& layout) {
  const std::string of_model = problem.implementation.experts.count > 0 ? "train has no mixture of experts yet"
                                                                        : why_not_trainable(problem.model);
  const std::string of_layout = why_not_runnable(problem.model.num_layers, layout);
  return of_model + (of_model.empty() || of_layout.empty() ? "" : "; ") + of_layout;
}

std::string what_else_lacks(const PlanProblem& problem, const Layout& layout, const Layout& other) {
  std::vector<std::string> lacks = lacks_of_layout(problem.model.num_layers, layout);
  const std::vector<std::string> known = lacks_of_layout(problem.model.num_layers, other);
  std::erase_if(lacks, [&](const std::string& each) { return std::ranges::find(known, each) != known.end(); });
  return fmt::format("{}", fmt::join(lacks, "; "));
}

}  // namespace espalier
