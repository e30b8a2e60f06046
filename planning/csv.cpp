// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/csv.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"

namespace espalier {
namespace {

struct Record {
  std::vector<std::string> fields;
  std::size_t line = 1;
  bool empty() const { return fields.size() == 1 && fields.front().empty(); }
};

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<Record> records_of(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf"))  // byte-order mark of UTF-8
    text.remove_prefix(3);
  std::vector<Record> records(1);
  records.back().fields.emplace_back();
  std::size_t line = 1;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& field = records.back().fields.back();
    if (c == '\n')
      ++line;
    if (quoted) {
      if (c != '"')
        field += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        field += text[++i];
      else
        quoted = false;
    } else if (c == '"' && trimmed(field).empty()) {
      quoted = true;
      field.clear();
    } else if (c == ',') {
      records.back().fields.emplace_back();
    } else if (c == '\n') {
      records.push_back({.fields = {""}, .line = line});
    } else if (c != '\r') {
      field += c;
    }
  }
  if (quoted)
    throw Error(ExitCode::data, {.what = "a quoted field never ends",
                                 .where = fmt::format("{}:{}", name, records.back().line),
                                 .wanted = "a closing \"",
                                 .todo = "close the field; a quote in its text is doubled: \"\""});
  return records;
}

}  // namespace

std::string CsvRow::where() const { return fmt::format("{}:{}", file_, line_); }

std::string CsvRow::text(const std::string& column) const {
  const auto found = fields_.find(column);
  return found == fields_.end() ? "" : found->second;
}

std::optional<double> CsvRow::number(const std::string& column) const {
  const std::string field = text(column);
  if (field.empty())
    return std::nullopt;
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(field, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != field.size() || !std::isfinite(value))
    throw Error(ExitCode::data, {.what = fmt::format("{} is no number", column),
                                 .where = where(),
                                 .got = field,
                                 .wanted = "a finite number, as 1536, 0.25 or 1e-3, without a unit",
                                 .todo = fmt::format("correct the field, or leave it empty, in column {}", column)});
  return value;
}

std::vector<std::string> csv_columns(std::string_view text, const std::string& name) {
  const Record head = records_of(text, name).front();
  std::vector<std::string> columns;
  for (const std::string& field : head.fields)
    if (!head.empty())
      columns.push_back(trimmed(field));
  return columns;
}

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name) {
  const std::vector<Record> records = records_of(text, name);
  const std::vector<std::string>& head = records.front().fields;
  std::vector<CsvRow> rows;
  for (std::size_t r = 1; r < records.size(); ++r) {
    const Record& record = records[r];
    if (record.empty())
      continue;
    if (record.fields.size() > head.size())
      throw Error(ExitCode::data, {.what = "a record has more fields than the table has columns",
                                   .where = fmt::format("{}:{}", name, record.line),
                                   .got = fmt::format("{} fields", record.fields.size()),
                                   .wanted = fmt::format("at most {}", head.size()),
                                   .todo = "put fields that hold a comma in quotes"});
    std::map<std::string, std::string> fields;
    for (std::size_t i = 0; i < record.fields.size(); ++i)
      if (const std::string field = trimmed(record.fields[i]); !field.empty())
        fields[trimmed(head[i])] = field;
    rows.emplace_back(std::move(fields), name, record.line);
  }
  return rows;
}

}  // namespace espalier
