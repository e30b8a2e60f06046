// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/input_limits.hpp"
#include "io/json_numbers.hpp"
#include "io/json_reader.hpp"
#include "io/json_text.hpp"

namespace espalier {
namespace {

using nlohmann::json, nlohmann::ordered_json;

// A line as JSON; a discarded value where it is none.
json parsed(std::string_view line) {
  try {
    return line.size() > LargestFile::line ? json(json::value_t::discarded) : parse_json(line);
  } catch (const JsonError&) {
    return json(json::value_t::discarded);
  }
}

// Calls visit(line text, parsed) for each line that ends.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    visit(text.substr(0, end + 1), parsed(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
}

// The text without torn lines and without steps after `last_step`.
std::string keep_until(std::string_view text, std::int64_t last_step) {
  std::string kept;
  for_each_line(text, [&](std::string_view line_text, const json& line) {
    const auto step = line.find("step");
    if (step != line.end() && step->is_number_integer() && step->get<std::int64_t>() <= last_step)
      kept += line_text;
  });
  return kept;
}

}  // namespace

MetricsWriter::MetricsWriter(const Path& path, std::int64_t last_step) : path_(path) {
  // A link is left to open(), which follows none; anything else to read_file(): open() would wait for a FIFO's reader.
  if (const auto status = std::filesystem::symlink_status(path); exists(status) && !is_symlink(status)) {
    const std::string text = read_file(path, ExitCode::write);
    const std::string kept = keep_until(text, last_step);
    if (kept != text)
      write_file_atomically(path, kept);
  }
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_.is_open())
    throw_write_error("cannot open the metrics file", path_, errno);
}

void MetricsWriter::append(const ordered_json& line) {
  ordered_json printable = line;
  name_non_finite(printable);
  std::string text = json_text(printable) + '\n';
  if (torn_)
    text.insert(text.begin(), '\n');
  ssize_t written = 0;
  do
    written = ::write(file_.get(), text.data(), text.size());
  while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(text.size())) {
    torn_ = false;
    return;
  }
  const int error = written < 0 ? errno : ENOSPC;
  torn_ = torn_ || written > 0;
  throw_write_error("cannot write the metrics file", path_, error);
}

bool set_aside_metrics(const Path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error)) ||
      std::filesystem::file_size(path, error) == 0)
    return false;
  std::filesystem::rename(path, path.parent_path() / "metrics.abandoned.jsonl", error);
  if (error)
    throw_write_error("cannot set the metrics of an earlier start aside", path, error.value());
  return true;
}

std::vector<json> read_metrics(const Path& path) {
  std::vector<json> lines;
  const std::string text = read_file(path, ExitCode::data);
  for_each_line(text, [&](std::string_view, const json& line) { lines.push_back(line); });
  return lines;
}

}  // namespace espalier
