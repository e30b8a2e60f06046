// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_option.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/scalars.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "planning/accelerator.hpp"
#include "planning/cluster.hpp"
#include "planning/layout_space.hpp"

namespace espalier {
namespace {

std::vector<std::string> layout_keys() {
  std::vector<std::string> keys{"precision"};
  each_choice([&](const char* key, auto, auto) { keys.emplace_back(key); });
  return keys;
}

// One "key=value" of an option.
struct Item {
  std::string option;
  std::string key;
  std::string value;
};

[[noreturn]] void throw_bad_value(const Item& item, const std::string& wanted) {
  throw Error(ExitCode::usage, {.what = fmt::format("{}: {} cannot have this value", item.option, item.key),
                                .got = item.value.empty() ? "nothing" : item.value,
                                .wanted = wanted,
                                .todo = fmt::format("change {}={} in {}", item.key, item.value, item.option)});
}

void read(const Item& item, Index& value) {
  const Index least = item.key == "zero_stage" ? 0 : 1;
  const Index most = item.key == "zero_stage" ? most_zero_stage : most_devices;
  const char* const end = item.value.data() + item.value.size();
  const auto [read_to, failed] = std::from_chars(item.value.data(), end, value);
  if (failed != std::errc() || read_to != end || value < least || value > most)
    throw_bad_value(item, fmt::format("a whole number from {} to {}", least, most));
}

void read(const Item& item, int& value) {
  Index number = 0;
  read(item, number);
  value = static_cast<int>(number);
}

// What a word means, of those that are wanted.
template <class Value>
void read_word(const Item& item, Value& value, const std::optional<Value>& meant, const std::string& wanted) {
  if (!meant)
    throw_bad_value(item, wanted);
  value = *meant;
}

template <class Value>
std::string one_of(const std::vector<Value>& values) {
  std::vector<std::string> names;
  for (const Value value : values)
    names.emplace_back(to_string(value));
  return fmt::format("one of {}", fmt::join(names, ", "));
}

template <class Value>
std::optional<Value> meaning(const std::string& word, const std::vector<std::pair<const char*, Value>>& words) {
  for (const auto& [known, value] : words)
    if (word == known)
      return value;
  return std::nullopt;
}

// The key that other words for it mean: those of a config of `train` and of JSON, and abbreviations.
std::string key_of(const std::string& word) {
  return meaning<std::string>(word, {{"zero", "zero_stage"},
                                     {"micro_batch_size", "micro_batch"},
                                     {"tp", "tensor"},
                                     {"cp", "context"},
                                     {"dp", "data"},
                                     {"pp", "pipeline"}})
      .value_or(word);
}

void read(const Item& item, bool& value) {
  read_word(item, value, meaning<bool>(item.value, {{"true", true}, {"1", true}, {"false", false}, {"0", false}}),
            "true or false");
}

// As in JSON and a config, or by the axis that is inside of the other.
void read(const Item& item, AxisOrder& value) {
  read_word(item, value,
            meaning<AxisOrder>(item.value, {{"data_first", data_first_order},
                                            {"tp,dp,pp", data_first_order},
                                            {"pipeline_first", pipeline_first_order},
                                            {"tp,pp,dp", pipeline_first_order}}),
            "data_first (tp,dp,pp) or pipeline_first (tp,pp,dp)");
}

void read(const Item& item, ShardOver& value) {
  read_word(item, value, meaning<ShardOver>(item.value, {{"all", ShardOver::all}, {"node", ShardOver::node}}),
            "all or node");
}

void read(const Item& item, Recompute& value) {
  read_word(item, value, parse_recompute(item.value), one_of(all_recompute_modes()));
}

void read(const Item& item, ScheduleKind& value) {
  read_word(item, value, parse_schedule_kind(item.value), one_of(all_schedule_kinds()));
}

void read(const Item& item, Precision& value) {
  read_word(item, value, parse_priced_precision(item.value),
            fmt::format("one of {}", fmt::join(priced_precision_names(), ", ")));
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
  bool is_known = item.key == "precision";
  if (is_known)
    read(item, layout.precision);
  each_choice([&](const char* key, auto, auto chosen) {
    if (item.key != key)
      return;
    read(item, layout.*chosen);
    is_known = true;
  });
  if (!is_known)
    throw_unknown_key(item);
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
                   .todo = fmt::format("leave out one of them{}",
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
