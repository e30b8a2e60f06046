// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "io/toml_config.hpp"
#include "io/toml_text.hpp"

namespace espalier {
namespace {

std::string toml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      quoted += '\\', quoted += c;
    else if (c == '\n')
      quoted += "\\n";
    else if (c == '\t')
      quoted += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

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

void ConfigWriter::comment(std::string_view text) { text_ += fmt::format("# {}\n", text); }

void ConfigWriter::section(std::string_view section, std::string_view about) {
  section_ = section;
  text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", section);
  if (!about.empty())
    comment(about);
}

void ConfigWriter::write_line(std::string_view section, std::string_view key, const std::string& value,
                              std::string_view comment) {
  if (section != section_)
    this->section(section, "");
  std::string line = fmt::format("{} = {}", key, value);
  if (!comment.empty())
    line = fmt::format("{:<40}  # {}", line, comment);
  text_ += line + '\n';
}

void ConfigWriter::write(std::string_view section, std::string_view key, bool value, std::string_view comment) {
  write_line(section, key, value ? "true" : "false", comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, Index value, std::string_view comment) {
  write_line(section, key, fmt::format("{}", value), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, double value, std::string_view comment) {
  std::string text = fmt::format("{}", value);  // the shortest text that reads back to the same bits
  if (text.find_first_not_of("-0123456789") == std::string::npos)
    text += ".0";
  write_line(section, key, text, comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::string& value,
                         std::string_view comment) {
  write_line(section, key, toml_quoted(value), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::vector<Index>& value,
                         std::string_view comment) {
  write_line(section, key, fmt::format("[{}]", fmt::join(value, ", ")), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::vector<std::string>& value,
                         std::string_view comment) {
  std::vector<std::string> items;
  items.reserve(value.size());
  for (const std::string& item : value)
    items.push_back(toml_quoted(item));
  write_line(section, key, fmt::format("[{}]", fmt::join(items, ", ")), comment);
}

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

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  // Optimal string alignment: insert, delete, replace, swap neighbours.
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i)
      for (std::size_t j = 0; j <= b.size(); ++j) {
        if (i == 0 || j == 0) {
          d[i][j] = i + j;
          continue;
        }
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    return d[a.size()][b.size()];
  };
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = distance(word.substr(0, 100), candidate);
    if (edits < least && edits < candidate.size()) {
      least = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace espalier
