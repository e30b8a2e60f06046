// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/toml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.hpp"

namespace espalier {
namespace {

// Line `number` of a text, counted from 1, as far as it can be shown.
std::string line_of(std::string_view text, std::size_t number) {
  constexpr std::size_t most = 80;
  for (std::size_t i = 1; i < number && !text.empty(); ++i)
    text.remove_prefix(std::min(text.size(), text.find('\n') == text.npos ? text.size() : text.find('\n') + 1));
  const std::string_view whole = text.substr(0, text.find('\n'));
  std::string line(whole.substr(0, most));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return whole.size() > most ? line + "..." : line;
}

// "expected ']', saw '\n'": without what toml++ was doing when it found out.
std::string reason_of(const toml::parse_error& error) {
  const std::string_view text = error.description();
  const std::size_t colon = text.starts_with("Error while parsing") ? text.find(": ") : text.npos;
  return std::string(colon == text.npos ? text : text.substr(colon + 2));
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& name, const std::string& kind) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    throw Error(ExitCode::usage,
                {.what = fmt::format("the {} is not valid TOML: {}", kind, reason_of(error)),
                 .where = fmt::format("{}:{}:{}", name, begin.line, begin.column),
                 .got = line_of(text, begin.line),
                 .wanted = "lines `key = value` under a `[section]`, each key and section once",
                 .todo = "mend the line; strings need quotes, also those of a number with a unit: \"80 GiB\""});
  }
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
  return text.size() > 60 ? fmt::format("{}...", text.substr(0, 57)) : text;
}

std::string article(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point:
      return **node.as_floating_point() == std::round(**node.as_floating_point()) ? "a floating-point number"
                                                                                  : "a number with a fraction";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

}  // namespace espalier
