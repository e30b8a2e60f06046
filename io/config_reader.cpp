// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "io/nearest_word.hpp"
#include "io/toml_config.hpp"
#include "io/toml_text.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

using Name = std::pair<std::string, std::string>;  // section, key

struct Position {
  bool command_line = false;
  std::size_t line = 0;  // or the number of the override
  std::size_t column = 0;
  auto order() const { return std::tuple(command_line, line, column); }
};

struct Problem {
  Position position;
  std::string text;
};

struct Given {
  std::shared_ptr<toml::table> owner;
  const toml::node* value = nullptr;
  Position position;
  Position key_position;
  std::string text;  // of an override, as typed
};

Position position_of(const toml::source_region& source) { return {false, source.begin.line, source.begin.column}; }

std::string suggestion(const std::string& nearest) {
  return nearest.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", nearest);
}

std::string display(std::string_view section, std::string_view key) { return fmt::format("{}.{}", section, key); }

std::string describe(const toml::node& node) { return fmt::format("{} ({})", to_toml_text(node), article(node)); }

}  // namespace

struct ConfigReader::Data {
  std::string name;
  ConfigKind kind;
  std::map<Name, Given> given;
  std::map<std::string, Position> sections;  // as written in the file
  std::map<std::string, std::set<std::string>> known;
  std::set<std::string> left;  // sections that are for others
  std::vector<Problem> problems;
  std::set<std::string> refused_keys;  // "run.steps": a default stands in place of what was given
  bool checked_unknown = false;

  void add_file(std::string_view text);
  void add_override(std::size_t number, const std::string& text);
  void unknown(const Name& name, const Given& item);
  std::vector<std::string> section_names() const {
    std::vector<std::string> names(left.begin(), left.end());
    for (const auto& [section, keys] : known)
      names.push_back(section);
    return names;
  }
  std::vector<std::string> problem_lines() const;
  std::string location(const Position& position) const {
    return position.command_line ? "command line" : fmt::format("{}:{}:{}", name, position.line, position.column);
  }

  template <class Number, class Range, class Parse>
  bool read_unit(std::string_view section, std::string_view key, Number& value, Range range, Parse parse,
                 const std::string& wanted);
  const Given* ask(std::string_view section, std::string_view key) {
    known[std::string(section)].insert(std::string(key));
    const auto found = given.find({std::string(section), std::string(key)});
    return found == given.end() ? nullptr : &found->second;
  }
  void wrong(const Given& item, std::string_view section, std::string_view key, const std::string& got,
             const std::string& wanted) {
    refused_keys.insert(display(section, key));
    problems.push_back({item.position, fmt::format("{}: got {}, wanted {}", display(section, key), got, wanted)});
  }
};

void ConfigReader::Data::add_file(std::string_view text) {
  auto table = std::make_shared<toml::table>(parse_toml(text, name, kind.name));
  for (auto&& [section, node] : *table) {
    const std::string section_name(section.str());
    const Position at = position_of(section.source());
    if (!node.is_table()) {
      given[{"", section_name}] = {table, &node, at, at, {}};
      continue;
    }
    sections[section_name] = at;
    for (auto&& [key, value] : *node.as_table())
      given[{section_name, std::string(key.str())}] = {
          table, &value, position_of(value.source()), position_of(key.source()), {}};
  }
}

void ConfigReader::Data::add_override(std::size_t number, const std::string& text) {
  const Position position{true, number, 0};
  const std::size_t equals = text.find('=');
  const std::size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 || dot + 1 >= equals) {
    problems.push_back({position, fmt::format("{}: wanted section.key=value", text)});
    return;
  }
  const std::string value_text = text.substr(equals + 1);
  auto table = std::make_shared<toml::table>(parse_toml_value(value_text));
  const Name name_of{text.substr(0, dot), text.substr(dot + 1, equals - dot - 1)};
  given[name_of] = {table, table->get("value"), position, position, value_text};
}

ConfigReader::ConfigReader(std::string_view text, std::string name, const std::vector<std::string>& overrides,
                           ConfigKind kind)
    : data_(std::make_unique<Data>()) {
  data_->name = std::move(name);
  data_->kind = std::move(kind);
  data_->add_file(text);
  for (std::size_t i = 0; i < overrides.size(); ++i)
    data_->add_override(i, overrides[i]);
}

ConfigReader::ConfigReader(const Path& file, const std::vector<std::string>& overrides, ConfigKind kind)
    : ConfigReader(read_file(file, ExitCode::usage), file.string(), overrides, std::move(kind)) {}

ConfigReader::~ConfigReader() = default;

bool ConfigReader::read(std::string_view section, std::string_view key, bool& value) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (item->value->is_boolean())
    value = **item->value->as_boolean();
  else
    data_->wrong(*item, section, key, describe(*item->value), "true or false");
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, Index& value, IntegerRange range) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (!item->value->is_integer())
    data_->wrong(*item, section, key, describe(*item->value), "an integer");
  else if (!inside(**item->value->as_integer(), range))
    data_->wrong(*item, section, key, to_toml_text(*item->value), describe(range));
  else
    value = **item->value->as_integer();
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, double& value, RealRange range) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  const auto number = item->value->value<double>();  // an integer serves as well
  if (!item->value->is_number() || !number)
    data_->wrong(*item, section, key, describe(*item->value), "a number");
  else if (!inside(*number, range))
    data_->wrong(*item, section, key, to_toml_text(*item->value),
                 std::isfinite(*number) ? describe(range) : "a finite number");
  else
    value = *number;
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::string& value,
                        const std::vector<std::string>& choices) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (!item->value->is_string() && !item->position.command_line) {
    data_->wrong(*item, section, key, describe(*item->value), "a string");
    return true;
  }
  const std::string text = item->value->is_string() ? **item->value->as_string() : item->text;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    data_->wrong(*item, section, key, fmt::format("\"{}\"", text),
                 fmt::format("one of \"{}\"{}", fmt::join(choices, "\", \""), suggestion(nearest_word(text, choices))));
    return true;
  }
  value = text;
  return true;
}

bool ConfigReader::read_text(std::string_view section, std::string_view key, std::string& value,
                             const std::string& wanted) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  if (item->value->is_string())
    value = **item->value->as_string();
  else
    data_->wrong(*item, section, key, describe(*item->value), wanted);
  return item->value->is_string();
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::vector<Index>& value, IntegerRange range) {
  const Given* const item = data_->ask(section, key);
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
    data_->wrong(*item, section, key, describe(*item->value), "a list of integers, like [1, 2]");
  else if (outside != numbers.end())
    data_->wrong(*item, section, key, fmt::format("{} at place {}", *outside, outside - numbers.begin() + 1),
                 describe(range));
  else
    value = numbers;
  return true;
}

bool ConfigReader::read(std::string_view section, std::string_view key, std::vector<std::string>& value) {
  const Given* const item = data_->ask(section, key);
  if (item == nullptr)
    return false;
  std::vector<std::string> strings;
  const toml::array* const array = item->value->as_array();
  bool good = array != nullptr || item->value->is_string();
  if (item->value->is_string())
    strings.push_back(**item->value->as_string());
  for (std::size_t i = 0; array != nullptr && good && i < array->size(); ++i) {
    good = (*array)[i].is_string();
    if (good)
      strings.push_back(**(*array)[i].as_string());
  }
  if (good)
    value = strings;
  else
    data_->wrong(*item, section, key, describe(*item->value), "a list of strings, like [\"a\", \"b\"]");
  return true;
}

// Units go through one path: a number as it is, a string by its parser.
template <class Number, class Range, class Parse>
bool ConfigReader::Data::read_unit(std::string_view section, std::string_view key, Number& value, Range range,
                                   Parse parse, const std::string& wanted) {
  const Given* const item = ask(section, key);
  if (item == nullptr)
    return false;
  const toml::node& node = *item->value;
  std::optional<Number> number;
  if (node.is_string())
    number = parse(**node.as_string());
  else if (!item->text.empty() || node.is_number())
    number = parse(item->text.empty() ? to_toml_text(node) : item->text);
  if (!number && node.is_number()) {  // "1e6", or a negative number: whole ones are numbers too
    const double given = *node.value<double>();
    if (std::abs(given) < 0x1p62 && given == static_cast<double>(static_cast<Number>(given)))
      number = static_cast<Number>(given);
  }
  const bool not_finite = node.is_floating_point() && !std::isfinite(**node.as_floating_point());
  if (!number && !not_finite)
    wrong(*item, section, key, describe(node), wanted);
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

bool ConfigReader::read_seconds(std::string_view section, std::string_view key, double& value, RealRange range) {
  return data_->read_unit(section, key, value, range, parse_seconds,
                          "a duration, like \"90s\", \"2h\" or \"01:30:00\"");
}

void ConfigReader::leave(std::string_view section) { data_->left.emplace(section); }

bool ConfigReader::was_refused(std::string_view section, std::string_view key) const {
  return data_->refused_keys.contains(display(section, key));
}

void ConfigReader::derive(std::string_view section, std::string_view key,
                          std::initializer_list<std::string_view> bases) {
  if (std::ranges::any_of(bases, [&](auto base) { return data_->refused_keys.contains(std::string(base)); }))
    data_->refused_keys.insert(display(section, key));
}

void ConfigReader::problem(std::string_view section, std::string_view key, std::string message,
                           std::initializer_list<std::string_view> others) {
  const auto refused = [&](std::string_view name) { return data_->refused_keys.contains(std::string(name)); };
  if (was_refused(section, key) || std::ranges::any_of(others, refused))
    return;
  const auto found = data_->given.find({std::string(section), std::string(key)});
  const Position end_of_file{false, std::numeric_limits<std::size_t>::max(), 0};
  data_->problems.push_back({found == data_->given.end() ? end_of_file : found->second.position,
                             display(section, key) + ": " + std::move(message)});
}

void ConfigReader::problem(std::string_view section, const std::string& sentence) {
  std::istringstream words(sentence);
  for (std::string word; words >> word;)
    if (was_refused(section, word))
      return;
  const std::size_t space = sentence.find(' ');
  problem(section, sentence.substr(0, space), sentence.substr(space + 1));
}

bool ConfigReader::has_problems() const { return !data_->problems.empty(); }

// Its value was meant for another key, or for that of another section: a default stands there.
void ConfigReader::Data::unknown(const Name& name, const Given& item) {
  const auto& [section, key] = name;
  const auto found = known.find(section);
  std::string elsewhere;
  for (const auto& [other, keys] : known)
    if (keys.count(key) > 0) {
      elsewhere = fmt::format("; it belongs in [{}]", other);
      refused_keys.insert(display(other, key));
    }
  if (section.empty()) {
    problems.push_back({item.key_position, fmt::format("{}: stands before any [section]{}", key, elsewhere)});
  } else if (found != known.end()) {
    const std::string nearest = nearest_word(key, {found->second.begin(), found->second.end()});
    refused_keys.insert(display(section, nearest));
    problems.push_back({item.key_position, fmt::format("{}: unknown key{}", display(section, key),
                                                       nearest.empty() ? elsewhere : suggestion(nearest))});
  } else if (sections.count(section) == 0 || item.position.command_line) {  // else reported as a section
    problems.push_back({item.key_position, fmt::format("{}: unknown section{}", display(section, key),
                                                       suggestion(nearest_word(section, section_names())))});
  }
}

void ConfigReader::check_unknown() {
  if (std::exchange(data_->checked_unknown, true))
    return;
  const Data& data = *data_;
  for (const auto& [section, position] : data.sections)
    if (data.known.count(section) == 0 && data.left.count(section) == 0)
      data_->problems.push_back({position, fmt::format("[{}]: unknown section{}", section,
                                                       suggestion(nearest_word(section, data.section_names())))});
  for (const auto& [name, item] : data.given) {
    const auto found = data.known.find(name.first);
    if (data.left.count(name.first) == 0 && (found == data.known.end() || found->second.count(name.second) == 0))
      data_->unknown(name, item);
  }
}

// In the order of the file, then of the command line.
std::vector<std::string> ConfigReader::Data::problem_lines() const {
  std::vector<Problem> sorted = problems;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Problem& a, const Problem& b) { return a.position.order() < b.position.order(); });
  std::vector<std::string> lines;
  for (const Problem& problem : sorted)
    lines.push_back(fmt::format(
        "{}: {}", problem.position.line == std::numeric_limits<std::size_t>::max() ? name : location(problem.position),
        problem.text));
  return lines;
}

std::vector<std::string> ConfigReader::problems() const { return data_->problem_lines(); }

void ConfigReader::finish() {
  check_unknown();
  if (data_->problems.empty())
    return;
  const std::size_t count = data_->problems.size();
  throw Error(ExitCode::usage, {.what = fmt::format("the {} has {}\n  {}", data_->kind.name,
                                                    count == 1 ? "a problem" : fmt::format("{} problems", count),
                                                    fmt::join(data_->problem_lines(), "\n  ")),
                                .todo = data_->kind.help});
}

}  // namespace espalier
