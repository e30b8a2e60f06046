// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/plan_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

// The key that other words for it mean: those of a config of `train`, and abbreviations.
std::string meant_key(const std::string& word) {
  constexpr std::array<std::pair<const char*, const char*>, 6> words{{{"zero_stage", "zero"},
                                                                      {"micro_batch_size", "micro_batch"},
                                                                      {"tp", "tensor"},
                                                                      {"cp", "context"},
                                                                      {"dp", "data"},
                                                                      {"pp", "pipeline"}}};
  for (const auto& [other, key] : words)
    if (word == other)
      return key;
  return nearest_word(word, layout_keys());
}

// One "key=value" of an option.
struct Item {
  std::string option;
  std::string key;
  std::string value;
};

[[noreturn]] void throw_bad_value(const Item& item, const std::string& wanted) {
  throw Error(ExitCode::usage, {.what = fmt::format("{}: {} cannot be this", item.option, item.key),
                                .got = item.value.empty() ? "nothing" : item.value,
                                .wanted = wanted,
                                .todo = fmt::format("change {}={} in {}", item.key, item.value, item.option)});
}

int number(const Item& item, int least, int most) {
  const std::string& text = item.value;
  int result = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (failed != std::errc() || end != text.data() + text.size() || result < least || result > most)
    throw_bad_value(item, fmt::format("a whole number from {} to {}", least, most));
  return result;
}

bool truth(const Item& item) {
  if (item.value != "true" && item.value != "false" && item.value != "1" && item.value != "0")
    throw_bad_value(item, "true or false");
  return item.value == "true" || item.value == "1";
}

void set(PlanLayout& layout, const Item& item) {
  constexpr int most = 1 << 24;
  const std::string& key = item.key;
  if (key == "data")
    layout.data = number(item, 1, most);
  else if (key == "tensor")
    layout.tensor = number(item, 1, most);
  else if (key == "context")
    layout.context = number(item, 1, most);
  else if (key == "pipeline")
    layout.pipeline = number(item, 1, most);
  else if (key == "virtual_stages")
    layout.virtual_stages = number(item, 1, most);
  else if (key == "micro_batch")
    layout.micro_batch = number(item, 1, most);
  else if (key == "zero")
    layout.zero_stage = number(item, 0, 3);
  else if (key == "sequence_parallel")
    layout.sequence_parallel = truth(item);
  else if (key == "recompute") {
    const auto mode = parse_recompute(item.value);
    if (!mode)
      throw_bad_value(item, "none, selective or full");
    layout.recompute = *mode;
  } else if (key == "schedule") {
    const auto schedule = parse_plan_schedule(item.value);
    if (!schedule)
      throw_bad_value(item, "1f1b, gpipe, sequential, interleaved, zero_bubble, zero_bubble_2p or zero_bubble_v");
    layout.schedule = *schedule;
  } else if (key == "precision") {
    const auto precision = parse_precision(item.value);
    if (!precision)
      throw_bad_value(item, "fp32, tf32, fp16, bf16 or fp8");
    layout.precision = *precision;
  } else if (key == "order") {
    if (item.value != "data_first" && item.value != "pipeline_first")
      throw_bad_value(item, "data_first or pipeline_first");
    layout.data_inside_pipeline = item.value == "data_first";
  } else {
    const std::string keys = fmt::format("{}", fmt::join(layout_keys(), ", "));
    const std::string nearest = meant_key(key);
    throw Error(ExitCode::usage,
                {.what = fmt::format("{}: unknown key", item.option),
                 .got = key,
                 .wanted = keys,
                 .todo = nearest.empty() ? "name one of these" : fmt::format("did you mean {}?", nearest)});
  }
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

// "a=1, b=2", each key once.
std::vector<Item> items_of(const std::string& text, const std::string& option) {
  std::vector<Item> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw Error(ExitCode::usage, {.what = fmt::format("{}: cannot read this", option),
                                    .got = text.empty()   ? "nothing"
                                           : item.empty() ? text
                                                          : item,
                                    .wanted = "key=value,key=value: data=8,tensor=4,pipeline=2",
                                    .todo = fmt::format("keys: {}", fmt::join(layout_keys(), ", "))});
    items.push_back({option, trimmed(item.substr(0, equals)), trimmed(item.substr(equals + 1))});
    const Item& last = items.back();
    const auto same = std::ranges::find(items, last.key, &Item::key);
    if (same != items.end() - 1)
      throw Error(ExitCode::usage,
                  {.what = fmt::format("{}: {} is given twice", option, last.key),
                   .got = fmt::format("{}={} and {}={}", last.key, same->value, last.key, last.value),
                   .wanted = "each key once",
                   .todo = fmt::format("leave one of them away{}",
                                       option == "--layout" ? ", or compare both: --layout twice" : "")});
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

PlanLayout parse_plan_layout(const std::string& text, PlanLayout start, const std::string& option) {
  bool names_schedule = false;
  for (const Item& item : items_of(text, option)) {
    set(start, item);
    names_schedule = names_schedule || item.key == "schedule";
  }
  if (start.virtual_stages > 1 && !names_schedule)
    start.schedule = PlanSchedule::interleaved;
  return start;
}

std::vector<std::string> plan_layout_keys_in(const std::string& text, const std::string& option) {
  std::vector<std::string> keys;
  for (const Item& item : items_of(text, option)) {
    PlanLayout ignored;
    set(ignored, item);
    keys.push_back(item.key);
  }
  return keys;
}

}  // namespace espalier
