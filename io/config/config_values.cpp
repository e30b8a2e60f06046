// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The typed reads of a ConfigReader.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "core/printable_text.hpp"
#include "io/config/config_reader_data.hpp"
#include "io/config/toml_text.hpp"
#include "io/home_path.hpp"
#include "io/nearest_word.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// As it was typed, where it was typed: 1e5 is 100000 otherwise.
std::string describe(const GivenValue& item) {
  const bool is_typed = !item.text.empty() && !item.value->is_string();
  return fmt::format("{} ({})", is_typed ? item.text : to_toml_text(*item.value), article(*item.value));
}

}  // namespace

const GivenValue* ConfigReader::Data::ask(std::string_view section, std::string_view key) {
  known[std::string(section)].insert(std::string(key));
  const auto found = given.find({std::string(section), std::string(key)});
  return found == given.end() ? nullptr : &found->second;
}

void ConfigReader::Data::wrong(const GivenValue& item, std::string_view section, std::string_view key,
                               const std::string& got, const std::string& wanted) {
  refused_keys.insert(display(section, key));
  problems.push_back({item.position, fmt::format("{}: got {}, wanted {}", display(section, key), got, wanted)});
}

std::optional<std::string> ConfigReader::Data::with_home(const GivenValue& item, std::string_view section,
                                                         std::string_view key, const std::string& text) {
  try {
    const std::string path = expand_home(text);
    if (path.find('\0') != std::string::npos) {
      wrong(item, section, key, "a text with a zero byte", "a text without zero bytes");
      return std::nullopt;
    }
    if (is_utf8(path))
      return path;
    wrong(item, section, key, fmt::format("\"{}\"", path), "a path of UTF-8, which a file of TOML can hold");
  } catch (const Error& error) {
    wrong(item, section, key, fmt::format("\"{}\"", text),
          fmt::format("{}; {}", error.report().wanted, error.report().todo));
  }
  return std::nullopt;
}

bool ConfigReader::read(std::string_view section, std::string_view key, bool& value) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (item->value->is_boolean())
    value = **item->value->as_boolean();
  else
    data_->wrong(*item, section, key, describe(*item), "true or false" + boolean_hint(*item->value));
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, Index& value, IntegerRange range) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (!item->value->is_integer())
    data_->wrong(*item, section, key, describe(*item), "an integer" + integer_hint(*item->value));
  else if (!inside(**item->value->as_integer(), range))
    data_->wrong(*item, section, key, to_toml_text(*item->value), describe(range));
  else
    value = **item->value->as_integer();
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, double& value, FloatRange range) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  const auto number = number_of(*item->value);
  if (!number)
    data_->wrong(*item, section, key, describe(*item), "a number" + real_hint(*item->value));
  else if (!inside(*number, range))
    data_->wrong(*item, section, key, to_toml_text(*item->value),
                 std::isfinite(*number) ? describe(range) : "a finite number");
  else
    value = *number;
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::string& value,
                        const std::vector<std::string>& choices) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  const bool needs_no_quotes = item->position.command_line && !item->value->is_array() && !item->value->is_table();
  if (!item->value->is_string() && !needs_no_quotes) {
    data_->wrong(*item, section, key, describe(*item), "a string");
    return true;
  }
  const std::string text = item->value->is_string() ? **item->value->as_string() : item->text;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    data_->wrong(*item, section, key, fmt::format("\"{}\"", text),
                 fmt::format("one of \"{}\"{}", fmt::join(choices, "\", \""), suggestion(nearest_word(text, choices))));
    return true;
  }
  if (const std::optional<std::string> path = data_->with_home(*item, section, key, text))
    value = *path;
  return true;
}

bool ConfigReader::read_text(std::string_view section, std::string_view key, std::string& value,
                             const std::string& wanted) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (item->value->is_string())
    value = **item->value->as_string();
  else
    data_->wrong(*item, section, key, describe(*item), wanted);
  return item->value->is_string();
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::vector<Index>& value, IntegerRange range) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  const toml::array* const array = item->value->as_array();
  std::vector<Index> numbers;
  bool good = array != nullptr;
  for (std::size_t i = 0; good && i < array->size(); ++i) {
    good = (*array)[i].is_integer();
    if (good)
      numbers.push_back(**(*array)[i].as_integer());
  }
  const auto outside = std::find_if_not(numbers.begin(), numbers.end(), [&](Index n) { return inside(n, range); });
  if (!good)
    data_->wrong(*item, section, key, describe(*item), "a list of integers, like [1, 2]");
  else if (outside != numbers.end())
    data_->wrong(*item, section, key, fmt::format("{} at place {}", *outside, outside - numbers.begin() + 1),
                 describe(range));
  else
    value = numbers;
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::vector<double>& value, FloatRange range) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  const toml::array* const array = item->value->as_array();
  std::vector<double> numbers;
  bool good = array != nullptr;
  for (std::size_t i = 0; good && i < array->size(); ++i) {
    const auto number = number_of((*array)[i]);
    good = number.has_value();
    numbers.push_back(number.value_or(0));
  }
  const auto outside = std::find_if_not(numbers.begin(), numbers.end(), [&](double n) { return inside(n, range); });
  if (!good)
    data_->wrong(*item, section, key, describe(*item), "a list of numbers, like [0.5, 2]");
  else if (outside != numbers.end())
    data_->wrong(*item, section, key, fmt::format("{} at place {}", *outside, outside - numbers.begin() + 1),
                 describe(range));
  else
    value = numbers;
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::vector<std::string>& value) {
  const GivenValue* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  std::vector<std::string> strings;
  const toml::array* const array = item->value->as_array();
  bool good = array != nullptr || item->value->is_string();
  std::error_code missing;
  if (item->value->is_string() && item->text.find(',') != std::string::npos &&
      item->text == **item->value->as_string() && !std::filesystem::exists(item->text, missing)) {
    data_->wrong(*item, section, key, fmt::format("\"{}\", one name with a comma", item->text),
                 list_spelling(display(section, key), item->text));
    return true;
  }
  if (item->value->is_string())
    strings.push_back(**item->value->as_string());
  for (std::size_t i = 0; array != nullptr && good && i < array->size(); ++i) {
    good = (*array)[i].is_string();
    if (good)
      strings.push_back(**(*array)[i].as_string());
  }
  for (std::string& string : strings) {
    const std::optional<std::string> path = data_->with_home(*item, section, key, string);
    if (!path)
      return true;
    string = *path;
  }
  if (good)
    value = strings;
  else
    data_->wrong(*item, section, key, describe(*item), "a list of strings, like [\"a\", \"b\"]");
  return true;
}

template <class Number>
std::optional<Number> whole_or_real(double value) {
  if constexpr (std::is_floating_point_v<Number>)
    return value;
  else
    return std::abs(value) < 0x1p62 && value == std::round(value) ? std::optional(static_cast<Number>(value))
                                                                  : std::nullopt;
}

// Units go through one path: a number as it is, a string by its parser.
template <class Number, class Range, class Parse>
bool ConfigReader::Data::read_unit(std::string_view section, std::string_view key, Number& value, Range range,
                                   Parse parse, const std::string& wanted) {
  const GivenValue* const item = ask(section, key);
  if (item == nullptr)
    return false;
  const toml::node& node = *item->value;
  std::optional<Number> number;
  if (node.is_string())
    number = parse(**node.as_string());
  else if (node.is_integer())
    number = static_cast<Number>(**node.as_integer());
  else if (const auto real = number_of(node))  // "1e6": whole ones are numbers of things, too
    number = whole_or_real<Number>(*real);
  else
    number = parse(item->text);  // 01:30:00, which TOML takes for a time of the day
  const bool not_finite = node.is_floating_point() && !std::isfinite(**node.as_floating_point());
  if (!number && !not_finite)
    wrong(*item, section, key, describe(*item), wanted);
  else if (not_finite || !inside(*number, range))
    wrong(*item, section, key, to_toml_text(node), describe(range));
  else
    value = *number;
  return true;
}

bool ConfigReader::read_count(std::string_view section, std::string_view key, Index& value, IntegerRange range) {
  return data_->read_unit(section, key, value, range, parse_count, "a whole number, like 1000 or \"1.5B\"");
}

bool ConfigReader::read_bytes(std::string_view section, std::string_view key, Index& value, IntegerRange range) {
  return data_->read_unit(section, key, value, range, parse_bytes, "a size, like \"64 MiB\" or \"2 GB\"");
}

bool ConfigReader::read_seconds(std::string_view section, std::string_view key, double& value, FloatRange range) {
  return data_->read_unit(section, key, value, range, parse_seconds,
                          "a duration, like \"90s\", \"2h\" or \"01:30:00\"");
}

}  // namespace espalier
