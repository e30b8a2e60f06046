// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/toml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/error.hpp"

namespace espalier {

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    throw Error(ExitCode::usage, {.what = "the config is not valid TOML",
                                  .where = fmt::format("{}:{}:{}", name, begin.line, begin.column),
                                  .got = std::string(error.description()),
                                  .todo = "lines are `key = value` under a `[section]`; strings need quotes"});
  }
}

toml::table parse_toml_value(const std::string& text) {
  try {
    toml::table table = toml::parse("value = " + text);
    if (table.size() == 1 && text.find_first_of("\n#") == std::string::npos)
      return table;
  } catch (const toml::parse_error&) {  // a string without quotes
  }
  toml::table table;
  table.insert("value", text);
  return table;
}

std::string to_toml_text(const toml::node& node) {
  std::ostringstream stream;
  if (const auto* const number = node.as_floating_point())
    stream << fmt::format("{}", **number);
  else if (const auto* const string = node.as_string())
    stream << '"' << **string << '"';
  else
    node.visit([&](const auto& value) { stream << value; });
  std::string text = stream.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string article(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

}  // namespace espalier
