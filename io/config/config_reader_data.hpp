// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "io/config/toml_config.hpp"

// Private to the config files of this module: what a ConfigReader knows, what an override says, and what was probably
// meant by a value of another type.

namespace espalier {

using ConfigName = std::pair<std::string, std::string>;  // section, key

struct ConfigPosition {
  bool command_line = false;
  std::size_t line = 0;  // or the number of the override
  std::size_t column = 0;
  auto order() const { return std::tuple(command_line, line, column); }
};

struct ConfigProblem {
  ConfigPosition position;
  std::string text;
  bool of_a_key = true;  // which the help explains; else of a rule between keys
};

struct GivenValue {
  std::shared_ptr<toml::table> owner;
  const toml::node* value = nullptr;
  ConfigPosition position;
  ConfigPosition key_position;
  std::string text;  // of an override, as typed
};

/// "section.key"
std::string display(std::string_view section, std::string_view key);

/// "; did you mean "steps"?"; empty for no word
std::string suggestion(const std::string& nearest);

struct ConfigReader::Data {
  std::string name;
  ConfigKind kind;
  std::map<ConfigName, GivenValue> given;
  std::map<std::string, ConfigPosition> sections;  // as written in the file
  std::map<std::string, std::set<std::string>> known;
  std::set<std::string> left;  // sections that are for others
  std::vector<ConfigProblem> problems;
  std::set<std::string> refused_keys;  // "run.steps": a default stands in place of what was given
  bool checked_unknown = false;

  void add_file(std::string_view text);
  void add_override(std::size_t number, const std::string& text);
  void add_problem(std::string_view section, std::string_view key, std::string_view message, bool of_a_key);
  void unknown(const ConfigName& name, const GivenValue& item);
  std::vector<std::string> section_names() const;
  std::vector<std::string> problem_lines() const;
  std::string location(const ConfigPosition& position) const;

  template <class Number, class Range, class Parse>
  bool read_unit(std::string_view section, std::string_view key, Number& value, Range range, Parse parse,
                 const std::string& wanted);
  // A text as the path that it may be, with the home directory in place of ~; nothing where that is a problem.
  std::optional<std::string> with_home(const GivenValue& item, std::string_view section, std::string_view key,
                                       const std::string& text);
  const GivenValue* ask(std::string_view section, std::string_view key);
  void wrong(const GivenValue& item, std::string_view section, std::string_view key, const std::string& got,
             const std::string& wanted);
};

/// "section.key=value" of a command line.
struct ConfigOverride {
  std::string section;
  std::string key;
  std::string text;   ///< the value as it was typed
  toml::table table;  ///< its only key `value` holds what the text means
};

/// The value is TOML, or a text that needs no quotes: one that does not begin with a quote, a bracket or a brace.
/// @throws std::invalid_argument that says what is wrong, and how to write it
ConfigOverride parse_override(const std::string& given);

/// `a, b` or `[a, b]` as a shell takes the list that was meant: 'data.train=["a", "b"]'
std::string list_spelling(std::string_view name, std::string_view text);

/// A number as it is, integers as large as they come; nothing for what is no number.
std::optional<double> number_of(const toml::node& node);

/// "; write 100000" for 1e5, "1e5", "100k" or "100_000.0"; empty where no whole number can be meant.
std::string integer_hint(const toml::node& node);

/// "; write 0.5" for "0.5" or ".5"
std::string real_hint(const toml::node& node);

/// "; write true" for "True", "yes", "on" or 1
std::string boolean_hint(const toml::node& node);

}  // namespace espalier
