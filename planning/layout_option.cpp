// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_option.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "planning/accelerator.hpp"
#include "planning/cluster.hpp"
#include "planning/to_double.hpp"

namespace espalier {
namespace {

const std::vector<std::string>& layout_keys() {
  static const std::vector<std::string> keys{"data",        "tensor",    "context", "pipeline",   "virtual_stages",
                                             "micro_batch", "recompute", "zero",    "shard_over", "sequence_parallel",
                                             "schedule",    "precision", "order"};
  return keys;
}

// The key that other words for it mean: those of a config of `train` and of JSON, and abbreviations.
std::string key_of(const std::string& word) {
  constexpr std::array<std::pair<const char*, const char*>, 6> words{{{"zero_stage", "zero"},
                                                                      {"micro_batch_size", "micro_batch"},
                                                                      {"tp", "tensor"},
                                                                      {"cp", "context"},
                                                                      {"dp", "data"},
                                                                      {"pp", "pipeline"}}};
  for (const auto& [other, key] : words)
    if (word == other)
      return key;
  return word;
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

// "tp,dp,pp" as in JSON and a config, or by the axis that is inside of the other.
AxisOrder order_named(const Item& item) {
  const bool data = item.value == "data_first" || item.value == "tp,dp,pp";
  if (!data && item.value != "pipeline_first" && item.value != "tp,pp,dp")
    throw_bad_value(item, "data_first (tp,dp,pp) or pipeline_first (tp,pp,dp)");
  return data ? data_first_order : pipeline_first_order;
}

ShardOver shard_over_named(const Item& item) {
  if (item.value != "all" && item.value != "node")
    throw_bad_value(item, "all or node");
  return item.value == "all" ? ShardOver::all : ShardOver::node;
}

[[noreturn]] void throw_unknown_key(const Item& item) {
  const std::string nearest = nearest_word(item.key, layout_keys());
  throw Error(ExitCode::usage, {.what = fmt::format("{}: unknown key", item.option),
                                .got = item.key,
                                .wanted = fmt::format("{}", fmt::join(layout_keys(), ", ")),
                                .todo = item.key.starts_with("global_batch") ? "--batch gives the sequences of a step"
                                        : nearest.empty()                    ? "name one of these"
                                                          : fmt::format("did you mean {}?", nearest)});
}

void set(Layout& layout, const Item& item) {
  constexpr int most = most_devices;
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
  else if (key == "shard_over")
    layout.shard_over = shard_over_named(item);
  else if (key == "sequence_parallel")
    layout.sequence_parallel = truth(item);
  else if (key == "recompute") {
    const auto mode = parse_recompute(item.value);
    if (!mode)
      throw_bad_value(item, "none, selective or full");
    layout.recompute = *mode;
  } else if (key == "schedule") {
    const auto schedule = parse_schedule_kind(item.value);
    if (!schedule)
      throw_bad_value(item, "1f1b, gpipe, sequential, interleaved, zero_bubble, zero_bubble_2p or zero_bubble_v");
    layout.schedule = *schedule;
  } else if (key == "precision") {
    const auto precision = parse_priced_precision(item.value);
    if (!precision)
      throw_bad_value(item, "fp32, tf32, fp16, bf16 or fp8");
    layout.precision = *precision;
  } else if (key == "order") {
    layout.order = order_named(item);
  } else {
    throw_unknown_key(item);
  }
}

// Each degree alone may be as large as a machine; their product must be, too.
void require_possible_devices(const Layout& layout, const std::string& option) {
  const double devices =
      to_double(layout.data) * to_double(layout.tensor) * to_double(layout.context) * to_double(layout.pipeline);
  if (devices > most_devices)
    throw Error(ExitCode::usage,
                {.what = fmt::format("{}: no machine has so many devices", option),
                 .got = fmt::format("data {} x tensor {} x context {} x pipeline {} = {:.4g}", layout.data,
                                    layout.tensor, layout.context, layout.pipeline, devices),
                 .wanted = fmt::format("at most {}", most_devices),
                 .todo = "choose degrees whose product is the number of devices"});
}

// "a=1, b=2", each key once.
std::vector<Item> items_of(const std::string& text, const std::string& option) {
  std::vector<Item> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    begin = end + 1;
    if (const std::string axis = trimmed(item);
        !items.empty() && items.back().key == "order" && (axis == "tp" || axis == "dp" || axis == "pp")) {
      items.back().value += "," + axis;
      continue;
    }
    if (equals == std::string::npos)
      throw Error(ExitCode::usage, {.what = fmt::format("{}: cannot read this", option),
                                    .got = text.empty()   ? "nothing"
                                           : item.empty() ? text
                                                          : item,
                                    .wanted = "key=value,key=value: data=8,tensor=4,pipeline=2",
                                    .todo = fmt::format("keys: {}", fmt::join(layout_keys(), ", "))});
    items.push_back({option, key_of(trimmed(item.substr(0, equals))), trimmed(item.substr(equals + 1))});
    const Item& last = items.back();
    const auto same = std::ranges::find(items, last.key, &Item::key);
    if (same != items.end() - 1)
      throw Error(ExitCode::usage,
                  {.what = fmt::format("{}: {} is given twice", option, last.key),
                   .got = fmt::format("{}={} and {}={}", last.key, same->value, last.key, last.value),
                   .wanted = "each key once",
                   .todo = fmt::format("leave one of them away{}",
                                       option == "--layout" ? ", or compare both: --layout twice" : "")});
  }
  return items;
}

}  // namespace

Layout parse_layout(const std::string& text, Layout start, const std::string& option) {
  bool names_schedule = false;
  for (const Item& item : items_of(text, option)) {
    set(start, item);
    names_schedule = names_schedule || item.key == "schedule";
  }
  if (start.virtual_stages > 1 && !names_schedule)
    start.schedule = ScheduleKind::interleaved;
  require_possible_devices(start, option);
  return start;
}

std::vector<std::string> layout_keys_in(const std::string& text, const std::string& option) {
  std::vector<std::string> keys;
  for (const Item& item : items_of(text, option)) {
    Layout ignored;
    set(ignored, item);
    keys.push_back(item.key);
  }
  return keys;
}

}  // namespace espalier
