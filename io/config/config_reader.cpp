// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "io/config/config_reader_data.hpp"
#include "io/config/other_names.hpp"
#include "io/config/toml_text.hpp"
#include "io/input_limits.hpp"
#include "io/nearest_word.hpp"

namespace espalier {
namespace {

ConfigPosition position_of(const toml::source_region& source) {
  return {false, source.begin.line, source.begin.column};
}

}  // namespace

std::string display(std::string_view section, std::string_view key) { return fmt::format("{}.{}", section, key); }

std::string suggestion(const std::string& nearest) {
  return nearest.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", nearest);
}

std::vector<std::string> ConfigReader::Data::section_names() const {
  std::vector<std::string> names(left.begin(), left.end());
  for (const auto& [section, keys] : known)
    names.push_back(section);
  return names;
}

std::string ConfigReader::Data::location(const ConfigPosition& position) const {
  return position.command_line ? "command line" : fmt::format("{}:{}:{}", name, position.line, position.column);
}

void ConfigReader::Data::add_file(std::string_view text) {
  auto table = std::make_shared<toml::table>(parse_toml(text, name, kind.name));
  for (auto&& [section, node] : *table) {
    const std::string section_name(section.str());
    const ConfigPosition at = position_of(section.source());
    const toml::array* const list = node.as_array();
    const bool is_list = list != nullptr && !list->empty() && list->front().is_table();
    if (is_list)
      problems.push_back({at, fmt::format("[[{0}]]: is a list of sections, wanted one: [{0}]", section_name)});
    const toml::table* const keys = is_list ? list->front().as_table() : node.as_table();
    if (keys == nullptr) {
      given[{"", section_name}] = {table, &node, at, at, {}};
      continue;
    }
    sections[section_name] = at;
    for (auto&& [key, value] : *keys)
      given[{section_name, std::string(key.str())}] = {
          table, &value, position_of(value.source()), position_of(key.source()), {}};
  }
}

void ConfigReader::Data::add_override(std::size_t number, const std::string& text) {
  const ConfigPosition position{true, number, 0};
  try {
    ConfigOverride override = parse_override(text);
    const auto table = std::make_shared<toml::table>(std::move(override.table));
    given[{override.section, override.key}] = {table, table->get("value"), position, position, override.text};
  } catch (const std::invalid_argument& error) {
    refused_keys.insert(text.substr(0, text.find('=')));
    problems.push_back({position, error.what()});
  }
}

void ConfigReader::Data::add_problem(std::string_view section, std::string_view key, std::string_view message,
                                     bool of_a_key) {
  const auto found = given.find({std::string(section), std::string(key)});
  const ConfigPosition end_of_file{false, std::numeric_limits<std::size_t>::max(), 0};
  problems.push_back({found == given.end() ? end_of_file : found->second.position,
                      fmt::format("{}: {}", display(section, key), message), of_a_key});
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
    : ConfigReader(read_file(file, ExitCode::usage, LargestFile::config), file.string(), overrides, std::move(kind)) {}

ConfigReader::~ConfigReader() = default;

void ConfigReader::leave(std::string_view section) { data_->left.emplace(section); }

void ConfigReader::refuse(std::string_view section, const std::string& reason) {
  const std::string name(section);
  const auto header = data_->sections.find(name);
  const auto key = data_->given.lower_bound({name, ""});
  const bool has_key = key != data_->given.end() && key->first.first == name;
  if (header == data_->sections.end() && !has_key)
    return;
  const ConfigPosition position = header != data_->sections.end() ? header->second : key->second.position;
  data_->problems.push_back({position, fmt::format("[{}] {}", section, reason)});
  leave(section);
}

bool ConfigReader::has(std::string_view section, std::string_view key) const {
  return data_->given.contains({std::string(section), std::string(key)});
}

bool ConfigReader::was_refused(std::string_view section, std::string_view key) const {
  return data_->refused_keys.contains(display(section, key));
}

void ConfigReader::derive(std::string_view section, std::string_view key,
                          std::initializer_list<std::string_view> bases) {
  if (std::ranges::any_of(bases, [&](auto base) { return data_->refused_keys.contains(std::string(base)); }))
    data_->refused_keys.insert(display(section, key));
}

void ConfigReader::problem(std::string_view section, std::string_view key, std::string_view message,
                           std::initializer_list<std::string_view> others) {
  const auto refused = [&](std::string_view name) { return data_->refused_keys.contains(std::string(name)); };
  if (was_refused(section, key) || std::ranges::any_of(others, refused))
    return;
  data_->add_problem(section, key, message, others.size() == 0);
}

void ConfigReader::rule_problem(std::string_view section, std::string_view key, std::string_view message,
                                const std::vector<std::string>& others) {
  if (was_refused(section, key) ||
      std::ranges::any_of(others, [&](const std::string& name) { return data_->refused_keys.contains(name); }))
    return;
  data_->add_problem(section, key, message, false);
}

bool ConfigReader::has_problems() const { return !data_->problems.empty(); }

// Its value was meant for another key, or for that of another section: a default stands there.
void ConfigReader::Data::unknown(const ConfigName& name, const GivenValue& item) {
  const auto& [section, key] = name;
  const auto found = known.find(section);
  std::string elsewhere;
  for (const auto& [other, keys] : known)
    if (keys.count(key) > 0) {
      elsewhere = fmt::format("; it belongs in [{}]", other);
      refused_keys.insert(display(other, key));
    }
  const std::string ours(our_name_for(key));
  const std::size_t dot = ours.find('.');
  if (key.find("expert") != std::string::npos || key.starts_with("moe_")) {
    problems.push_back(
        {item.key_position, fmt::format("{}: unknown key: mixtures of experts can be neither trained nor "
                                        "planned yet",
                                        display(section, key))});
  } else if (const auto meant = known.find(ours.substr(0, dot));
             meant != known.end() && meant->second.contains(ours.substr(dot + 1))) {
    refused_keys.insert(ours);
    problems.push_back(
        {item.key_position, fmt::format("{}: unknown key; did you mean {}?", display(section, key), ours)});
  } else if (section.empty()) {
    problems.push_back({item.key_position, fmt::format("{}: is not in any [section]{}", key, elsewhere)});
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
  std::vector<ConfigProblem> sorted = problems;
  std::stable_sort(sorted.begin(), sorted.end(), [](const ConfigProblem& a, const ConfigProblem& b) {
    return a.position.order() < b.position.order();
  });
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : sorted)
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
  const bool helps = std::ranges::any_of(data_->problems, &ConfigProblem::of_a_key);
  throw Error(ExitCode::usage, {.what = fmt::format("the {} has {}\n  {}", data_->kind.name,
                                                    count == 1 ? "a problem" : fmt::format("{} problems", count),
                                                    fmt::join(data_->problem_lines(), "\n  ")),
                                .todo = helps ? data_->kind.help : std::string()});
}

}  // namespace espalier
