// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "io/strings.hpp"

namespace espalier {
namespace {

struct Record {
  std::vector<std::string> fields;
  std::size_t line = 1;
};

bool is_blank(const Record& record) {
  return std::ranges::all_of(record.fields, [](const std::string& field) { return trimmed(field).empty(); });
}

// "" for the words by which tables say that they do not know.
std::string value_of(const std::string& field) {
  std::string value = trimmed(field);
  const std::string word = lower_case(value);
  constexpr std::array absent{"-", "--", "?", "n/a", "na", "nan", "null", "unknown"};
  if (std::ranges::find(absent, word) != absent.end())
    value.clear();
  return value;
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
    } else if (c == '"' && field.find_first_not_of(" \t\r") == field.npos) {
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

std::vector<std::string> columns_of(const Record& head, const std::string& name) {
  std::vector<std::string> columns;
  for (const std::string& field : head.fields) {
    const std::string column = trimmed(field);
    if (!column.empty() && std::ranges::find(columns, column) != columns.end())
      throw Error(ExitCode::data, {.what = "a column is named twice",
                                   .where = fmt::format("{}:{}", name, head.line),
                                   .got = column,
                                   .wanted = "each name once",
                                   .todo = fmt::format("rename or remove one of the columns {}", column)});
    columns.push_back(column);
  }
  return columns;
}

CsvRow row_of(const Record& record, const std::vector<std::string>& columns, const std::string& name) {
  std::map<std::string, std::string> fields;
  std::size_t num_excess = 0;
  for (std::size_t i = 0; i < record.fields.size(); ++i) {
    const std::string field = value_of(record.fields[i]);
    if (field.empty())
      continue;
    if (i >= columns.size())
      ++num_excess;
    else if (!columns[i].empty())
      fields[columns[i]] = field;
  }
  return {std::move(fields), name, record.line, num_excess};
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

std::optional<Index> CsvRow::whole(const std::string& column) const {
  const std::optional<double> value = number(column);
  if (!value)
    return std::nullopt;
  if (*value < 0 || *value > 1e15 || *value != std::floor(*value))
    throw Error(ExitCode::data, {.what = fmt::format("{} is no whole number", column),
                                 .where = where(),
                                 .got = text(column),
                                 .wanted = "a whole number from 0 to 1e15",
                                 .todo = fmt::format("correct the field, or leave it empty, in column {}", column)});
  return static_cast<Index>(*value);
}

CsvTable parse_csv(std::string_view text, const std::string& name) {
  std::vector<Record> records = records_of(text, name);
  std::erase_if(records, is_blank);
  CsvTable table;
  if (records.empty())
    return table;
  table.columns = columns_of(records.front(), name);
  for (std::size_t r = 1; r < records.size(); ++r)
    table.rows.push_back(row_of(records[r], table.columns, name));
  return table;
}

}  // namespace espalier
