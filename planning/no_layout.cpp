// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/no_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/nearest_sizes.hpp"
#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layout_limits.hpp"

namespace espalier {
namespace {

constexpr Index farthest_size = 128;  // from the one asked for
constexpr int most_times = 256;       // as many devices as asked for, at most, to find where it fits

// A question to the planner.
struct Asked {
  PlanProblem problem;
  LayoutSpace space;
};

void set_devices(Asked& asked, Index devices) {
  asked.space.num_devices = static_cast<int>(devices);
  asked.problem.cluster = with_devices(asked.problem.cluster, static_cast<int>(devices));
}

void set_heads(Asked& asked, Index heads) {
  if (asked.problem.model.kv_heads() == asked.problem.model.num_heads)
    asked.problem.model.num_kv_heads = heads;
  asked.problem.model.num_heads = heads;
}

// A size that might be another.
struct Size {
  std::string option;  // "--batch "
  Index now;
  std::function<void(Asked&, Index)> set;
};

std::vector<Size> sizes_of(const Asked& asked) {
  std::vector<Size> sizes;
  each_choice([&](const char* key, auto fixed, auto) {
    using Value = std::decay_t<decltype(*(asked.space.*fixed))>;
    constexpr bool is_size = std::is_same_v<Value, int> || std::is_same_v<Value, Index>;
    if constexpr (is_size)
      if (asked.space.*fixed && std::string_view(key) != "zero_stage")
        sizes.push_back({fmt::format("--fix {}=", key), *(asked.space.*fixed),
                         [fixed](Asked& other, Index size) { other.space.*fixed = static_cast<Value>(size); }});
  });
  sizes.push_back(
      {"--batch ", asked.space.global_batch, [](Asked& other, Index size) { other.space.global_batch = size; }});
  sizes.push_back({"--devices ", asked.space.num_devices, set_devices});
  sizes.push_back({"a model with num_heads = ", asked.problem.model.num_heads, set_heads});
  sizes.push_back({"a model with num_layers = ", asked.problem.model.num_layers,
                   [](Asked& other, Index size) { other.problem.model.num_layers = size; }});
  return sizes;
}

bool is_possible(const Asked& asked) {
  if (!broken_rules(asked.problem.model).empty() || !problems(asked.problem.cluster).empty())
    return false;
  const std::vector<Layout> layouts = enumerate_layouts(asked.problem, asked.space);
  return std::any_of(layouts.begin(), layouts.end(),
                     [&](const Layout& layout) { return why_impossible(asked.problem, layout).empty(); });
}

// Of a device, for the smallest layout that can exist.
std::size_t least_bytes(const Asked& asked) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const Layout& layout : enumerate_layouts(asked.problem, asked.space))
    if (why_impossible(asked.problem, layout).empty())
      least = std::min(least, peak_bytes(memory_of_stages(asked.problem, layout)));
  return least;
}

// "64", or "64 (does not fit: ...)".
std::string size_text(const Asked& asked, Index size) {
  const std::size_t need = least_bytes(asked);
  return fits_memory(asked.problem, need) ? fmt::format("{}", size)
                                          : fmt::format("{} ({} fit: needs {} per device, a device has {})", size,
                                                        need > free_bytes(asked.problem) ? "does not" : "may not",
                                                        need_text(asked.problem, need), free_text(asked.problem));
}

bool fits_on(const PlanProblem& problem, const LayoutSpace& space, Index devices) {
  Asked more{problem, space};
  set_devices(more, devices);
  return problems(more.problem.cluster).empty() && fits_memory(problem, least_bytes(more));
}

bool has_one_of(const Accelerator& device, const std::vector<Precision>& asked) {
  return std::ranges::any_of(asked, [&](Precision each) { return device.has(each); });
}

ErrorReport no_precision_report(const Accelerator& device, const std::vector<Precision>& asked) {
  constexpr std::array<Precision, 3> usual{Precision::bf16, Precision::fp16, Precision::fp32};
  const auto* const instead = std::ranges::find_if(usual, [&](Precision each) { return device.has(each); });
  std::vector<std::string> names;
  for (const Precision each : asked)
    names.emplace_back(to_string(each));
  return {.what = "no layout of this model is possible on this machine",
          .got = fmt::format("{} does not support {}", device.name, fmt::join(names, " or ")),
          .wanted = fmt::format("a precision that it supports: {}", fmt::join(precision_names(device), ", ")),
          .todo = instead == usual.end() ? "choose one of these with --precision"
                                         : fmt::format("use --precision {}, or --fix precision={} if --fix chose it",
                                                       to_string(*instead), to_string(*instead))};
}

std::string smallest_text(const PlanProblem& problem, const SearchResult& result) {
  return fmt::format("the smallest of {} layouts needs {} per device", result.num_considered - result.num_impossible,
                     need_text(problem, result.smallest_bytes));
}

}  // namespace

std::string nearest_possible(const PlanProblem& problem, const LayoutSpace& space) {
  const Asked asked{problem, space};
  std::vector<std::string> texts;
  for (const Size& size : sizes_of(asked)) {
    const auto with = [&](Index value) {
      Asked other = asked;
      size.set(other, value);
      return other;
    };
    std::vector<std::string> values;
    for (const Index value : nearest_sizes(
             size.now, most_devices, [&](Index each) { return is_possible(with(each)); }, farthest_size))
      values.push_back(size_text(with(value), value));
    if (!values.empty())
      texts.push_back(fmt::format("{}{}", size.option, fmt::join(values, " or ")));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

Index fewest_devices(const PlanProblem& problem, const LayoutSpace& space) {
  constexpr Index most_tried = 64;  // between a doubling that does not fit and one that does
  // No layout takes less than the states, each once.
  const double states = all_state_bytes(problem.model, space.precisions.front());
  const auto least = static_cast<Index>(states / static_cast<double>(free_bytes(problem)));
  for (Index times = 2; times <= most_times && times * space.num_devices <= most_devices; times *= 2) {
    const Index most = times * space.num_devices;
    if (most < least || !fits_on(problem, space, most))
      continue;
    const Index node = std::max(problem.cluster.devices_per_node, problem.cluster.node_capacity);
    const Index step = std::max(most <= node ? 1 : node, most / 2 / most_tried);
    for (Index devices = (most / 2 / step + 1) * step; devices < most; devices += step)
      if (devices >= least && fits_on(problem, space, devices))
        return devices;
    return most;
  }
  return 0;
}

std::string why_no_layout(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result) {
  if (!has_one_of(problem.cluster.device, space.precisions))
    return no_precision_report(problem.cluster.device, space.precisions).got;
  if (result.num_too_large > 0) {
    const Index devices = fewest_devices(problem, space);
    return fmt::format("no layout fits: {}, a device has {}{}", smallest_text(problem, result), free_text(problem),
                       devices > 0 ? fmt::format("; it fits on {} devices", devices) : "");
  }
  const std::string nearest = nearest_possible(problem, space);
  return "no layout divides model and batch" + (nearest.empty() ? "" : "; nearest: " + nearest);
}

ErrorReport no_layout_report(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result) {
  if (!has_one_of(problem.cluster.device, space.precisions))
    return no_precision_report(problem.cluster.device, space.precisions);
  if (result.num_too_large > 0) {
    const Index devices = fewest_devices(problem, space);
    return {
        .what = "no layout of this model fits this machine",
        .got = fmt::format("{}: {} {}", smallest_text(problem, result), result.rejections.front().layout.text(),
                           result.rejections.front().reason),
        .wanted = fmt::format("at most {}", free_text(problem)),
        .todo = fmt::format("use {}, devices with more memory, or a smaller micro-batch or sequence",
                            devices > 0 ? fmt::format("{} devices (a layout fits there)", devices) : "more devices")};
  }
  const std::string nearest = nearest_possible(problem, space);
  return {.what = "no layout of this model is possible on this machine",
          .got = result.rejections.empty() ? "fixed degrees that do not divide the number of devices"
                                           : fmt::format("{} layouts, all impossible: {}", result.num_considered,
                                                         result.rejections.front().reason),
          .wanted = "a batch, a number of devices and model sizes that can be divided",
          .todo = nearest.empty() ? "fix fewer choices, or change --devices or --batch"
                                  : "change one of these: " + nearest};
}

}  // namespace espalier
