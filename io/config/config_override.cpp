// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/printable_text.hpp"
#include "io/config/config_reader_data.hpp"
#include "io/config/toml_config.hpp"
#include "io/config/toml_text.hpp"

namespace espalier {
namespace {

std::string_view without(std::string_view text, std::string_view around) {
  const std::size_t begin = std::min(text.find_first_not_of(around), text.size());
  return text.substr(begin, text.find_last_not_of(around) + 1 - begin);
}

// A table whose only key `value` holds what all of the text means. As an entry of a list it must have the same meaning:
// a comment behind it, or a second value, would hide the closing bracket or be an entry of its own.
std::optional<toml::table> toml_value(std::string_view text) {
  try {
    toml::table table = parse_toml(fmt::format("value = {}", text), "a value");
    const toml::table listed = parse_toml(fmt::format("value = [{}]", text), "a value");
    const toml::array* const list = listed["value"].as_array();
    if (table.size() == 1 && listed.size() == 1 && list != nullptr && list->size() == 1)
      return table;
  } catch (const Error&) {
  }
  return std::nullopt;
}

// `[a, "b" c", 2]` as the list that was meant.
std::string as_list(std::string_view text) {
  std::vector<std::string> items;
  for (text = without(text, "[] \t"); !text.empty();) {
    const std::size_t end = std::min(text.find_first_of(",\"'"), text.size());
    if (const std::string_view item = without(text.substr(0, end), " \t"); !item.empty())
      items.push_back(toml_value(item) ? std::string(item) : toml_quoted(item));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string quoted_for_shell(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

}  // namespace

std::string list_spelling(std::string_view name, std::string_view text) {
  return quoted_for_shell(fmt::format("{}={}", name, as_list(text)));
}

ConfigOverride parse_override(const std::string& given) {
  const std::string_view all = given;
  const std::size_t equals = all.find('=');
  const std::string_view name = without(all.substr(0, equals), " \t");
  const std::size_t dot = name.find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos || dot == 0 || dot + 1 == name.size())
    throw std::invalid_argument(fmt::format("{}: wanted section.key=value", given));
  const std::string_view value = without(all.substr(equals + 1), " \t");
  if (!is_utf8(given))
    throw std::invalid_argument(fmt::format(
        "{}: got \"{}\", which is not UTF-8, wanted a value that a TOML file can hold; rename the file", name, value));
  ConfigOverride override{std::string(name.substr(0, dot)), std::string(name.substr(dot + 1)), std::string(value), {}};
  if (std::optional<toml::table> table = toml_value(value)) {
    override.table = std::move(*table);
  } else if (!value.empty() && std::string_view("\"'[{").find(value.front()) != std::string_view::npos) {
    const std::string meant = value.front() == '['
                                  ? list_spelling(name, value)
                                  : quoted_for_shell(fmt::format("{}={}", name, toml_quoted(without(value, "\"'"))));
    throw std::invalid_argument(fmt::format("{}: {} is not a TOML value, wanted {}", name, value, meant));
  } else {
    override.table.insert("value", override.text);
  }
  return override;
}

}  // namespace espalier
