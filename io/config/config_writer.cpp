// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/printable_text.hpp"
#include "io/config/toml_config.hpp"

namespace espalier {
namespace {

// The shortest that reads back to the same bits.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos)
    text += ".0";
  return text;
}

}  // namespace

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

std::string override_text(std::string_view name, std::string_view value) {
  return fmt::format("{}={}", name, toml_quoted(value));
}

void ConfigWriter::comment(std::string_view text) {
  std::string_view rest = text;
  for (bool more = true; more;) {  // what begins a new line is a comment, too
    const std::size_t end = rest.find('\n');
    text_ += fmt::format("# {}\n", printable_line(rest.substr(0, end)));
    more = end != std::string_view::npos;
    rest.remove_prefix(more ? end + 1 : rest.size());
  }
}

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
  write_line(section, key, number_text(value), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::string& value,
                         std::string_view comment) {
  write_line(section, key, toml_quoted(value), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::vector<Index>& value,
                         std::string_view comment) {
  write_line(section, key, fmt::format("[{}]", fmt::join(value, ", ")), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::vector<double>& value,
                         std::string_view comment) {
  std::vector<std::string> items;
  items.reserve(value.size());
  for (const double item : value)
    items.push_back(number_text(item));
  write_line(section, key, fmt::format("[{}]", fmt::join(items, ", ")), comment);
}

void ConfigWriter::write(std::string_view section, std::string_view key, const std::vector<std::string>& value,
                         std::string_view comment) {
  std::vector<std::string> items;
  items.reserve(value.size());
  for (const std::string& item : value)
    items.push_back(toml_quoted(item));
  write_line(section, key, fmt::format("[{}]", fmt::join(items, ", ")), comment);
}

}  // namespace espalier
