// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/memory_text.hpp"
#include "diagnosis/report_data.hpp"
#include "io/markup.hpp"
#include "io/own_output.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {

namespace impl {
extern const char* const report_page;  // diagnosis/page/ with Chart.js, put together by the build
}

namespace {

constexpr std::uintmax_t max_bytes_at_end = 256u << 20;

// JSON inside of an element: no "</script>", and no "<!--", can stand in it.
std::string inside_script(const std::string& json) {
  std::string text;
  for (const char byte : json)
    byte == '<' ? text += "\\u003c" : text += byte;
  return text;
}

std::uintmax_t bytes_of_records(const Path& run) {
  std::error_code error;
  std::uintmax_t bytes = std::filesystem::file_size(run / RunFile::metrics, error);
  if (error)
    bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run / RunFolder::ranks, error))
    if (const std::uintmax_t more = entry.file_size(error); !error)
      bytes += more;
  return bytes;
}

}  // namespace

std::string report_json(const RecordedRun& run) { return json_text(report_data(run), 1) + "\n"; }

std::string report_html(const RecordedRun& run) {
  constexpr std::string_view title_mark = "@TITLE@";
  constexpr std::string_view data_mark = "@DATA@";
  const ReportJson data = report_data(run);
  const std::string_view page = impl::report_page;
  const std::size_t title = page.find(title_mark);
  const std::size_t script = page.find(data_mark);
  std::string html(page.substr(0, title));
  html += html_escaped(data["name"].get<std::string>());
  html += page.substr(title + title_mark.size(), script - title - title_mark.size());
  html += inside_script(json_text(data));
  html += page.substr(script + data_mark.size());
  return html;
}

void write_report(const RecordedRun& run, const Path& output) {
  write_output(output, {.kind = "a report", .begin = "<!DOCTYPE html>\n", .part = " - Espalier report</title>"},
               report_html(run));
}

std::string write_report_at_end(const Path& run) noexcept {
  try {
    if (const std::uintmax_t bytes = bytes_of_records(run); bytes > max_bytes_at_end)
      return fmt::format("the records of this run are {}: `espalier report {}` draws them", bytes_text(bytes),
                         run.string());
    write_report(read_recorded_run(run), run / RunFile::report);
    return {};
  } catch (const std::exception& error) {
    return fmt::format("{} could not be written: {}", RunFile::report, error.what());
  }
}

}  // namespace espalier
