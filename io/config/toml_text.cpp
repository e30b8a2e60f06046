// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/config/toml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.hpp"
#include "io/input_limits.hpp"

namespace espalier {
namespace {

// Line `number` of a text, counted from 1, as far as it can be shown.
std::string line_of(std::string_view text, std::size_t number) {
  constexpr std::size_t most = 80;
  for (std::size_t i = 1; i < number && !text.empty(); ++i)
    text.remove_prefix(std::min(text.size(), text.find('\n') == text.npos ? text.size() : text.find('\n') + 1));
  const std::string_view whole = text.substr(0, text.find('\n'));
  const std::string line(whole.substr(0, most));
  return whole.size() > most ? line + "..." : line;
}

// "expected ']', saw '\n'": without what toml++ was doing when it found out.
std::string reason_of(const toml::parse_error& error) {
  const std::string_view text = error.description();
  const std::size_t colon = text.starts_with("Error while parsing") ? text.find(": ") : text.npos;
  return std::string(colon == text.npos ? text : text.substr(colon + 2));
}

// Behind the string that begins at `at`, as far as it goes.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const char* const three = quote == '"' ? "\"\"\"" : "'''";
  const bool has_lines = text.substr(at).starts_with(three);
  for (std::size_t i = at + (has_lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (has_lines && text.substr(i).starts_with(three))  // two quotes may stand before the three that end it
      return i + std::min<std::size_t>(5, std::min(text.find_first_not_of(quote, i), text.size()) - i);
    else if (!has_lines && (text[i] == quote || text[i] == '\n'))
      return i + 1;
  }
  return text.size();
}

// Tables inside of tables: open brackets, and the dots of keys. The library builds and removes them by recursion, and
// bounds only the brackets. Exact up to the first mistake of the text, where the library ends.
std::size_t nesting_of(std::string_view text) {
  std::size_t open = 0;
  std::size_t dots = 0;  // of the key, or of the number, that is being passed
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = end_of_string(text, i);
      continue;
    }
    if (c == '#')
      i = std::min(text.find('\n', i), text.size()) - 1;
    else if (c == '.')
      ++dots;
    else if (c == '[' || c == '{')
      ++open;
    else if ((c == ']' || c == '}') && open > 0)
      --open;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos)
      dots = 0;
    deepest = std::max(deepest, open + dots);
    ++i;
  }
  return deepest;
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& name, const std::string& kind) {
  const std::size_t nesting = nesting_of(text);
  if (text.size() > LargestFile::config || nesting > deepest_nesting)
    throw Error(ExitCode::usage,
                {.what = fmt::format("the {} is {}", kind, nesting > deepest_nesting ? "nested too deep" : "too large"),
                 .where = name,
                 .got = fmt::format("{} bytes, {} levels of tables and lists", text.size(), nesting),
                 .wanted = fmt::format("at most {} bytes and {} levels", LargestFile::config, deepest_nesting),
                 .todo = "is it the right file?"});
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    throw Error(ExitCode::usage,
                {.what = fmt::format("the {} is not valid TOML: {}", kind, reason_of(error)),
                 .where = fmt::format("{}:{}:{}", name, begin.line, begin.column),
                 .got = line_of(text, begin.line),
                 .wanted = "lines `key = value` under a `[section]`, each key and section once",
                 .todo = "fix the line; strings need quotes, also those of a number with a unit: \"80 GiB\""});
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
