// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/metrics_csv.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/json_fields.hpp"
#include "io/own_output.hpp"
#include "io/pack/json_text.hpp"
#include "io/partial_file.hpp"
#include "io/records/metrics.hpp"

namespace espalier {

using nlohmann::ordered_json;

constexpr OutputMark table_mark{.kind = "a table of metrics", .begin = "step,loss,"};

ordered_json flat_fields(const ordered_json& line, const std::string& separator) {
  ordered_json flat = ordered_json::object();
  for (const auto& [key, value] : line.items()) {
    if (!value.is_object()) {
      flat[key] = value;
      continue;
    }
    const ordered_json fields = flat_fields(value, separator);
    for (const auto& [inner, number] : fields.items())
      flat[key + separator + inner] = number;
  }
  return flat;
}

MetricsCsv::MetricsCsv(const Path& path, const Path& metrics, const ordered_json& example) : path_(path) {
  const ordered_json columns = flat_fields(example);
  for (const auto& [key, value] : columns.items())
    columns_.push_back(key);
  require_own_output(path, table_mark);
  PartialFile file(path, table_mark);
  const auto write = [&](const std::string& text) {
    file.write(text.data(), text.size());
    last_begin_ = std::exchange(end_, end_ + text.size());
  };
  write(fmt::format("{}\n", fmt::join(columns_, ",")));
  visit_metrics(metrics, [&](const nlohmann::json& line) {
    if (!line.is_object())
      return;
    last_ = flat_fields(ordered_json(line));
    write(row(last_));
  });
  file.finish();
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file_.is_open())
    throw_write_error("cannot open the table of metrics", path_, errno);
}

void MetricsCsv::append(const ordered_json& line) {
  last_ = flat_fields(line);
  name_non_finite(last_);
  last_begin_ = end_;
  write_last();
}

void MetricsCsv::add_to_last(std::int64_t step, const std::string& key, double value) {
  if (last_.value("step", std::int64_t{-1}) != step)
    return;
  last_[key] = value;
  name_non_finite(last_);
  write_last();
}

void MetricsCsv::write_last() {
  const std::string text = row(last_);
  ssize_t written = 0;
  do
    written = ::pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(last_begin_));
  while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(text.size()))
    throw_write_error("cannot write the table of metrics", path_, written < 0 ? errno : ENOSPC);
  if (const std::size_t end = std::exchange(end_, last_begin_ + text.size());
      end > end_ && ::ftruncate(file_.get(), static_cast<off_t>(end_)) != 0)
    throw_write_error("cannot cut the table of metrics", path_, errno);
}

std::string MetricsCsv::row(const ordered_json& line) const {
  std::vector<std::string> cells;
  for (const std::string& column : columns_) {
    const auto field = line.find(column);
    cells.push_back(field == line.end() ? "" : field->is_string() ? field->get<std::string>() : json_text(*field));
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace espalier
