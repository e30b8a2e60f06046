// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/plan_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "io/nearest_word.hpp"

namespace espalier {
namespace {

constexpr std::array<std::pair<PlanSchedule, const char*>, 7> schedules{
    {{PlanSchedule::one_f_one_b, "1f1b"},
     {PlanSchedule::gpipe, "gpipe"},
     {PlanSchedule::sequential, "sequential"},
     {PlanSchedule::interleaved, "interleaved"},
     {PlanSchedule::zero_bubble, "zero_bubble"},
     {PlanSchedule::zero_bubble_2p, "zero_bubble_2p"},
     {PlanSchedule::zero_bubble_v, "zero_bubble_v"}}};

const std::vector<std::string>& layout_keys() {
  static const std::vector<std::string> keys{
      "data",      "tensor", "context",           "pipeline", "virtual_stages", "micro_batch",
      "recompute", "zero",   "sequence_parallel", "schedule", "precision",      "order"};
  return keys;
}

[[noreturn]] void throw_bad_value(const std::string& key, const std::string& value, const std::string& wanted) {
  throw Error(ExitCode::usage, {.what = fmt::format("--layout: {} cannot be this", key),
                                .got = value,
                                .wanted = wanted,
                                .todo = fmt::format("change {}={} in --layout or --fix", key, value)});
}

int number(const std::string& key, const std::string& value, int least, int most) {
  int result = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (failed != std::errc() || end != value.data() + value.size() || result < least || result > most)
    throw_bad_value(key, value, fmt::format("a whole number from {} to {}", least, most));
  return result;
}

void set(PlanLayout& layout, const std::string& key, const std::string& value) {
  constexpr int most = 1 << 24;
  if (key == "data")
    layout.data = number(key, value, 1, most);
  else if (key == "tensor")
    layout.tensor = number(key, value, 1, most);
  else if (key == "context")
    layout.context = number(key, value, 1, most);
  else if (key == "pipeline")
    layout.pipeline = number(key, value, 1, most);
  else if (key == "virtual_stages")
    layout.virtual_stages = number(key, value, 1, most);
  else if (key == "micro_batch")
    layout.micro_batch = number(key, value, 1, most);
  else if (key == "zero")
    layout.zero_stage = number(key, value, 0, 3);
  else if (key == "sequence_parallel")
    layout.sequence_parallel = number(key, value == "true" ? "1" : value == "false" ? "0" : value, 0, 1) == 1;
  else if (key == "recompute") {
    const auto mode = parse_recompute(value);
    if (!mode)
      throw_bad_value(key, value, "none, selective or full");
    layout.recompute = *mode;
  } else if (key == "schedule") {
    const auto schedule = parse_plan_schedule(value);
    if (!schedule)
      throw_bad_value(key, value, "1f1b, gpipe, sequential, interleaved, zero_bubble, zero_bubble_2p or zero_bubble_v");
    layout.schedule = *schedule;
  } else if (key == "precision") {
    const auto precision = parse_precision(value);
    if (!precision)
      throw_bad_value(key, value, "fp32, tf32, fp16, bf16 or fp8");
    layout.precision = *precision;
  } else if (key == "order") {
    if (value != "data_first" && value != "pipeline_first")
      throw_bad_value(key, value, "data_first or pipeline_first");
    layout.data_inside_pipeline = value == "data_first";
  } else {
    const std::string nearest = nearest_word(key, layout_keys());
    throw Error(ExitCode::usage, {.what = "--layout: unknown key",
                                  .got = key,
                                  .wanted = fmt::format("{}", fmt::join(layout_keys(), ", ")),
                                  .todo = nearest.empty() ? "" : fmt::format("did you mean {}?", nearest)});
  }
}

// "a=1,b=2".
std::vector<std::pair<std::string, std::string>> items_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw Error(ExitCode::usage, {.what = "--layout: cannot read this",
                                    .got = item.empty() ? text : item,
                                    .wanted = "key=value,key=value: data=8,tensor=4,pipeline=2",
                                    .todo = fmt::format("keys: {}", fmt::join(layout_keys(), ", "))});
    items.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
  return items;
}

}  // namespace

const char* to_string(PlanSchedule schedule) {
  for (const auto& [each, name] : schedules)
    if (each == schedule)
      return name;
  return "unknown";
}

std::optional<PlanSchedule> parse_plan_schedule(std::string_view name) {
  for (const auto& [schedule, each] : schedules)
    if (name == each)
      return schedule;
  return std::nullopt;
}

bool allows_chunks(PlanSchedule schedule) {
  return schedule != PlanSchedule::one_f_one_b && schedule != PlanSchedule::zero_bubble &&
         schedule != PlanSchedule::zero_bubble_2p;
}

Implementation espalier_implementation() {
  Implementation made;
  made.compiled = true;
  return made;
}

AxisPlacement PlanLayout::data_axis() const {
  // Context ranks hold the same weights: their gradients are summed in the same collective. They lie side by side above
  // the tensor ranks; replicas follow them, or follow the stages.
  if (data_inside_pipeline)
    return {.size = data * context, .stride = tensor};
  return {.size = data * context, .stride = tensor, .run = context, .run_stride = tensor * context * pipeline};
}

AxisPlacement PlanLayout::pipeline_axis() const {
  return {pipeline, data_inside_pipeline ? tensor * context * data : tensor * context};
}

std::string PlanLayout::text() const {
  std::string text = fmt::format("tensor {}{} x data {} x pipeline {}", tensor,
                                 context > 1 ? fmt::format(" x context {}", context) : "", data, pipeline);
  if (pipeline > 1)
    text += virtual_stages > 1 ? fmt::format(" ({}, {} chunks)", to_string(schedule), virtual_stages)
                               : fmt::format(" ({})", to_string(schedule));
  text += fmt::format(", micro-batch {}, recompute {}, ZeRO-{}{}, {}", micro_batch, to_string(recompute), zero_stage,
                      sequence_parallel ? ", sequence parallel" : "", to_string(precision));
  if (!data_inside_pipeline && pipeline > 1 && data > 1)
    text += ", pipeline inside nodes";
  return text;
}

PlanLayout parse_plan_layout(const std::string& text, PlanLayout start) {
  bool names_schedule = false;
  for (const auto& [key, value] : items_of(text)) {
    set(start, key, value);
    names_schedule = names_schedule || key == "schedule";
  }
  if (start.virtual_stages > 1 && !names_schedule)
    start.schedule = PlanSchedule::interleaved;
  return start;
}

std::vector<std::string> plan_layout_keys_in(const std::string& text) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : items_of(text)) {
    PlanLayout ignored;
    set(ignored, key, value);
    keys.push_back(key);
  }
  return keys;
}

}  // namespace espalier
