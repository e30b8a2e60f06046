// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/metrics.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "io/checkpoint/set_aside.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"

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

// Calls visit(parsed) for each line that ends.
template <class Visit>
void for_each_record(std::string_view text, const Visit& visit) {
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    visit(parsed(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
}

constexpr std::int64_t any_step = std::numeric_limits<std::int64_t>::max();

struct LastLine {
  std::size_t begin = 0;
  std::size_t end = 0;  // behind its line feed
  std::int64_t step = 0;
  std::string text = {};
};

// The end of a file, read as far back as is needed.
class Tail {
 public:
  Tail(const Path& path, ExitCode code) : path_(path), code_(code), file_(path, code), begin_(file_.size()) {}
  std::size_t size() const { return file_.size(); }
  const InputFile& file() const { return file_; }

  // Where the line begins that ends before `end`. @throws Error where it is longer than any that is read.
  std::size_t line_begin(std::size_t end) {
    for (;; read_more()) {
      const std::size_t feed = end - begin_ > 1 ? text_.rfind('\n', end - begin_ - 2) : std::string::npos;
      if (feed != std::string::npos)
        return begin_ + feed + 1;
      if (begin_ == 0)
        return 0;
      if (end - begin_ > LargestFile::line + block)
        throw Error(code_, {.what = "this is not a metrics file",
                            .where = path_.string(),
                            .got = fmt::format("more than {} bytes in one line", LargestFile::line),
                            .wanted = "one JSON object per line, as training writes them",
                            .todo = "move the file away; the run resumes without it"});
    }
  }
  std::string text(std::size_t begin, std::size_t end) const { return text_.substr(begin - begin_, end - begin); }

 private:
  static constexpr std::size_t block = 1 << 16;

  void read_more() {
    std::string part(std::min(begin_, std::max(block, text_.size())), '\0');
    file_.read_at(begin_ - part.size(), part.data(), part.size());
    begin_ -= part.size();
    text_.insert(0, part);
  }

  Path path_;
  ExitCode code_;
  InputFile file_;
  std::size_t begin_;
  std::string text_;
};

// The last whole line of a step up to `last_step`. Lines are in the order of steps, so the file is read from its end.
std::optional<LastLine> last_line(Tail& tail, std::int64_t last_step) {
  for (std::size_t end = tail.line_begin(tail.size() + 1); end > 0;) {  // as if the torn line had an end
    const std::size_t begin = tail.line_begin(end);
    std::string text = tail.text(begin, end);
    const json line = parsed(text);
    if (const auto step = line.find("step"); step != line.end() && step->is_number_integer())
      if (const auto number = step->get<std::int64_t>(); number <= last_step)
        return LastLine{begin, end, number, std::move(text)};
    end = begin;
  }
  return std::nullopt;
}

std::string line_text(const ordered_json& line, std::size_t padding) {
  ordered_json printable = line;
  name_non_finite(printable);
  return json_text(printable) + std::string(padding, ' ') + '\n';
}

// False with errno where not all could be written.
bool write_at(int file, std::size_t offset, std::string_view text) {
  ssize_t written = 0;
  do
    written = ::pwrite(file, text.data(), text.size(), static_cast<off_t>(offset));
  while (written < 0 && errno == EINTR);
  if (written >= 0 && written < static_cast<ssize_t>(text.size()))
    errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size());
}

// Copies the lines from `begin` on to a file of their own: they are about to be taken again.
void set_aside_lines(const InputFile& file, std::size_t begin) {
  OutputFile aside(name_aside(file.path(), file.path().extension().string()));
  file.read_pieces(begin, file.size(), std::size_t{1} << 20,
                   [&](std::string_view piece) { aside.write(piece.data(), piece.size()); });
  aside.sync_and_close();
}

}  // namespace

MetricsWriter::MetricsWriter(const Path& path, std::int64_t last_step) : path_(path) {
  // A link is left to open(), which follows none; anything else to InputFile: open() would wait for a FIFO's reader.
  std::size_t size = 0;
  std::size_t kept = 0;
  if (const auto status = std::filesystem::symlink_status(path); exists(status) && !is_symlink(status)) {
    Tail tail(path, ExitCode::write);
    size = tail.size();
    if (const auto line = last_line(tail, last_step))
      kept = line->end;
    if (tail.line_begin(size + 1) > kept)  // more than a torn line
      set_aside_lines(tail.file(), kept);
  }
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_.is_open())
    throw_write_error("cannot open the metrics file", path_, errno);
  if (kept < size && ::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0)
    throw_write_error("cannot cut the metrics file", path_, errno);
}

void MetricsWriter::append(const ordered_json& line, std::size_t padding) {
  std::string text = line_text(line, padding);
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

void MetricsWriter::add_to_last(std::int64_t step, const std::string& key, double value) {
  Tail tail(path_, ExitCode::write);
  const std::optional<LastLine> line = last_line(tail, any_step);
  if (!line || line->step != step)
    return;
  const std::size_t before = line->end - line->begin;
  std::string text = line->text;
  text.resize(text.rfind('}'));
  text.resize(std::min(text.size(), text.find(",\"" + key + "\":")));  // of an evaluation before
  text += ',' + line_text({{key, value}}, 0).substr(1);
  if (text.size() < before)
    text.insert(text.size() - 1, before - text.size(), ' ');
  const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));  // file_ writes at the end only
  if (!file.is_open() || !write_at(file.get(), line->begin, text))
    throw_write_error("cannot write the metrics file", path_, errno);
}

std::int64_t last_step_in_metrics(const Path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return 0;
  Tail tail(path, ExitCode::data);
  const auto line = last_line(tail, any_step);
  return line ? line->step : 0;
}

std::vector<json> read_metrics(const Path& path) {
  std::vector<json> lines;
  visit_metrics(path, [&](const json& line) { lines.push_back(line); });
  return lines;
}

void visit_metrics(const Path& path, const std::function<void(const json&)>& visit) {
  const InputFile file(path, ExitCode::data);
  std::string rest;
  file.read_pieces(0, file.size(), std::size_t{1} << 20, [&](std::string_view piece) {
    rest += piece;
    const std::size_t end = rest.rfind('\n') + 1;
    for_each_record(std::string_view(rest).substr(0, end), visit);
    rest.erase(0, end);
  });
}

}  // namespace espalier
