// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/config/config_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "io/config/toml_text.hpp"

namespace espalier {
namespace {

std::map<std::string, std::string> flatten(std::string_view text) {
  std::map<std::string, std::string> values;
  const toml::table table = parse_toml(text, "config.toml");
  for (auto&& [section, node] : table) {
    const std::string section_name(section.str());
    if (const toml::table* const keys = node.as_table()) {
      for (auto&& [key, value] : *keys) {
        std::ostringstream stream;  // in full, unlike to_toml_text
        value.visit([&](const auto& concrete) { stream << concrete; });
        values[section_name + "." + std::string(key.str())] =
            value.is_floating_point() ? fmt::format("{}", **value.as_floating_point()) : stream.str();
      }
    } else {
      values[section_name] = to_toml_text(node);
    }
  }
  return values;
}

}  // namespace

std::vector<ConfigDifference> diff_configs(std::string_view old_text, std::string_view new_text) {
  const auto old_values = flatten(old_text);
  const auto new_values = flatten(new_text);
  std::vector<ConfigDifference> differences;
  for (const auto& [key, value] : old_values) {
    const auto found = new_values.find(key);
    if (found == new_values.end())
      differences.push_back({key, value, ""});
    else if (found->second != value)
      differences.push_back({key, value, found->second});
  }
  for (const auto& [key, value] : new_values)
    if (old_values.count(key) == 0)
      differences.push_back({key, "", value});
  std::sort(differences.begin(), differences.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return differences;
}

}  // namespace espalier
