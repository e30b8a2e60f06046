// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/phases.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "io/rank_file_name.hpp"

namespace espalier {
namespace {

// One event a line between these two, so that files are joined as text.
const std::string header = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
const std::string footer = "\n]}\n";

constexpr int num_tracks = 2;
constexpr const char* track_names[num_tracks] = {"operations", "communication"};
constexpr int threads_per_track = 100;  // at most: a step of tids

std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

// Times are integers here: two events that touch do not overlap after rounding.
struct Span {
  const TimelineEvent* event;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  int thread;
};

std::int64_t to_ns(double seconds) {
  ESPALIER_ASSERT(std::isfinite(seconds), "espalier::write_trace: a time that is not finite");
  return std::llround(seconds * 1e9);
}

// On a thread of the trace events follow one another or lie in one another. The first that an event fits into takes it.
std::vector<Span> on_threads(std::span<const TimelineEvent> events, int track) {
  std::vector<Span> spans;
  for (const TimelineEvent& event : events)
    if (event.track == track)
      spans.push_back({&event, to_ns(event.begin), std::max(to_ns(event.begin), to_ns(event.end)), 0});
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  std::vector<std::vector<std::int64_t>> open;  // by thread: the ends of what has not ended, innermost last
  for (Span& span : spans) {
    std::size_t thread = 0;
    for (; thread < open.size(); ++thread) {
      while (!open[thread].empty() && open[thread].back() <= span.begin_ns)
        open[thread].pop_back();
      if (open[thread].empty() || span.end_ns <= open[thread].back())
        break;
    }
    if (thread == open.size())
      open.emplace_back();
    open[thread].push_back(span.end_ns);
    span.thread = std::min(static_cast<int>(thread), threads_per_track - 1);
  }
  return spans;
}

std::string microseconds(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

std::string metadata(const char* what, int process, int tid, const std::string& key, const std::string& value) {
  return fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"{}": {}}}}})", what, process, tid,
                     key, value);
}

// The literal that a category was written from.
const char* phase_word(const std::string& category) {
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const char* const word = to_string(static_cast<Phase>(i)); category == word)
      return word;
  return nullptr;
}

std::optional<TimelineEvent> event_from(const nlohmann::json& json) {
  if (field<std::string>(json, "ph") != "X")
    return std::nullopt;
  const char* const category = phase_word(field<std::string>(json, "cat"));
  if (category == nullptr)
    return std::nullopt;
  const nlohmann::json& args = object_field(json, "args");
  const FloatRange microseconds{.min = -1e15, .max = 1e15};  // thirty years
  const double begin = field<double>(json, "ts", microseconds) * 1e-6;
  return TimelineEvent{
      .name = field<std::string>(json, "name"),
      .category = category,
      .chunk = field<int>(args, "chunk"),
      .microbatch = field<int>(args, "microbatch"),
      .begin = begin,
      .end = begin + field<double>(json, "dur", FloatRange{.min = 0, .max = 1e15}) * 1e-6,
      .track = std::min(field<int>(json, "tid", IntegerRange{.min = 0}) % 1000 / threads_per_track, num_tracks - 1),
      .step = field<Index>(args, "step")};
}

[[noreturn]] void throw_damaged(const Path& path, std::size_t line, std::string_view got) {
  throw Error(ExitCode::data,
              {.what = "a trace cannot be read",
               .where = fmt::format("{}:{}", path.string(), line),
               .got = got.empty() ? "nothing" : fmt::format("{:.80}", got.substr(0, got.find('\n'))),
               .wanted = "one event per line between the first and the last line, as train writes them",
               .todo = "restore the file from a copy, or remove it: then the page does not show this rank"});
}

}  // namespace

Path trace_path(const Path& directory, int rank) { return directory / rank_file_name(rank, ".json"); }

std::string trace_process_name(int rank, int stage, int replica, int tensor) {
  return fmt::format("rank {}: stage {}, replica {}, tensor {}", rank, stage, replica, tensor);
}

void write_trace(const Path& directory, int rank, const std::string& process_name,
                 std::span<const TimelineEvent> events) {
  const int process = rank + 1;
  // Unlike numbers in unlike processes: some viewers know a thread by its number alone.
  const auto tid = [&](int track, int thread) { return process * 1000 + track * threads_per_track + thread; };
  std::string text = header + metadata("process_name", process, tid(0, 0), "name", quoted(process_name));
  const auto add = [&](const std::string& line) { text += ",\n" + line; };
  add(metadata("process_sort_index", process, tid(0, 0), "sort_index", std::to_string(rank)));
  for (int track = 0; track < num_tracks; ++track) {
    const std::vector<Span> spans = on_threads(events, track);
    int num_threads = 1;
    for (const Span& span : spans)
      num_threads = std::max(num_threads, span.thread + 1);
    for (int thread = 0; thread < num_threads; ++thread) {
      const std::string name = track_names[track] + (thread == 0 ? std::string() : fmt::format(" ({})", thread + 1));
      add(metadata("thread_name", process, tid(track, thread), "name", quoted(name)));
      add(metadata("thread_sort_index", process, tid(track, thread), "sort_index",
                   std::to_string(track * threads_per_track + thread)));
    }
    for (const Span& span : spans)
      add(fmt::format(R"({{"ph": "X", "name": {}, "cat": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, )"
                      R"("args": {{"step": {}, "chunk": {}, "microbatch": {}}}}})",
                      quoted(span.event->name), quoted(span.event->category), process, tid(track, span.thread),
                      microseconds(span.begin_ns), microseconds(span.end_ns - span.begin_ns), span.event->step,
                      span.event->chunk, span.event->microbatch));
  }
  make_directories(directory);
  write_file_atomically(trace_path(directory, rank), text + footer);
}

std::vector<int> merge_traces(const Path& directory, int num_ranks) {
  std::vector<int> missing;
  std::string text;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::string part;
    try {
      part = read_file(trace_path(directory, rank), ExitCode::data);
    } catch (const Error&) {
      // found below: no header
    }
    if (!part.starts_with(header) || !part.ends_with(footer)) {
      missing.push_back(rank);
      continue;
    }
    text += (text.empty() ? "" : ",\n") + part.substr(header.size(), part.size() - header.size() - footer.size());
  }
  write_file_atomically(directory / "trace.json", header + text + footer);
  return missing;
}

std::vector<TimelineEvent> read_trace(const Path& path) {
  std::vector<TimelineEvent> events;
  const std::string whole = read_file(path, ExitCode::data);
  if (!whole.starts_with(header))
    throw_damaged(path, 1, whole);
  std::size_t number = 1 + static_cast<std::size_t>(std::ranges::count(header, '\n'));
  std::string_view text = std::string_view(whole).substr(header.size());
  for (; text != std::string_view(footer).substr(1); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with(','))
      line.remove_suffix(1);
    try {
      if (const auto event = event_from(parse_json(line)))
        events.push_back(*event);
    } catch (const std::runtime_error&) {
      throw_damaged(path, number, line);
    }
  }
  return events;
}

}  // namespace espalier
