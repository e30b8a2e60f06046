// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_limits.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/units.hpp"
#include "models/layout_rules.hpp"
#include "planning/interval.hpp"

namespace espalier {

std::string why_impossible(const PlanProblem& problem, const Layout& layout) {
  if (layout.num_devices() > problem.cluster.num_devices())
    return fmt::format("it needs {} devices, the machine has {}", layout.num_devices(), problem.cluster.num_devices());
  if (!problem.cluster.device.has(layout.precision))
    return fmt::format("{} does not support {} (it supports {})", problem.cluster.device.name,
                       to_string(layout.precision), fmt::join(precision_names(problem.cluster.device), ", "));
  if (layout.precision == Precision::fp8 && !problem.cluster.device.has(Precision::bf16))
    return fmt::format("{} does not support bf16, which fp8 layouts need for attention and head",
                       problem.cluster.device.name);
  const std::vector<BrokenRule> broken = broken_rules(problem.model, problem.sequence_length, layout);
  if (!broken.empty())
    return broken.front().sentence();
  return why_unlike_nodes(layout, problem.cluster.devices_per_node);
}

std::size_t free_bytes(const PlanProblem& problem) {
  return static_cast<std::size_t>(problem.cluster.device.memory_bytes - problem.cluster.reserved_bytes);
}

std::string free_text(const PlanProblem& problem) {
  const Cluster& cluster = problem.cluster;
  const auto text = [](Index bytes) { return bytes_text(static_cast<std::size_t>(bytes)); };
  return fmt::format("{} free (of {}, {} reserved)", bytes_text(free_bytes(problem)), text(cluster.device.memory_bytes),
                     text(cluster.reserved_bytes));
}

std::size_t needed_bytes(const PlanProblem& problem, std::size_t bytes) {
  const bool is_published_case = static_cast<bool>(problem.memory_of);
  return is_published_case ? bytes : static_cast<std::size_t>(memory_interval(problem, bytes).high);
}

bool fits_memory(const PlanProblem& problem, std::size_t bytes) {
  return needed_bytes(problem, bytes) <= free_bytes(problem);
}

std::string need_text(const PlanProblem& problem, std::size_t bytes) {
  const bool is_near = bytes <= free_bytes(problem) && !fits_memory(problem, bytes);
  return bytes_text(bytes) + (is_near ? fmt::format(" (at most {})", bytes_text(needed_bytes(problem, bytes))) : "");
}

std::string why_too_large(const PlanProblem& problem, const LayoutPrice& price) {
  const std::size_t free = free_bytes(problem);
  if (fits_memory(problem, price.memory_bytes))
    return {};
  const MemoryByCategory& stage = price.memory[static_cast<std::size_t>(price.peak_stage)];
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(stage.bytes) - stage.bytes.begin());
  const std::string need = fmt::format("stage {} needs {}, a device has {}", price.peak_stage,
                                       need_text(problem, price.memory_bytes), free_text(problem));
  if (price.memory_bytes <= free)
    return "may not fit: " + need;
  return fmt::format("does not fit: {}: {} too much, most of it {} ({})", need, bytes_text(price.memory_bytes - free),
                     to_string(static_cast<Category>(largest)), bytes_text(stage.bytes[largest]));
}

}  // namespace espalier
