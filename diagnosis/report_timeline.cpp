// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/phases.hpp"
#include "diagnosis/report_data.hpp"
#include "io/records/trace_file.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_timelines = 64;
constexpr std::size_t max_blocks = 3000;  // about 120 bytes each
constexpr double finest = 1e-4;           // share of the step

struct Row {
  std::size_t rank = 0;
  std::vector<TimelineEvent> events = {};
};

// All that were traced, or one of each stage where they are many: replicas and tensor ranks do alike.
std::vector<std::size_t> traced_ranks(const RecordedRun& run) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < run.traces.size(); ++rank) {
    if (run.traces[rank].empty())
      continue;
    if (run.traces.size() > max_timelines) {
      const PerAxis coordinates = run.config.layout.mesh().coordinates(static_cast<int>(rank));
      if (coordinates[Axis::tp] != 0 || coordinates[Axis::dp] != 0)
        continue;
    }
    ranks.push_back(rank);
  }
  ranks.resize(std::min(ranks.size(), max_timelines));
  return ranks;
}

// The last step that all of them traced; nothing where there is none.
std::optional<Index> common_step(const std::vector<Row>& rows) {
  std::set<Index> common;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::set<Index> steps;
    for (const TimelineEvent& event : rows[r].events)
      if (r == 0 || common.contains(event.step))
        steps.insert(event.step);
    common = steps;
  }
  return common.empty() ? std::nullopt : std::optional(*common.rbegin());
}

std::vector<Row> read_rows(const RecordedRun& run) {
  constexpr double longest = 1e9;  // seconds: no time of a run
  std::vector<Row> rows;
  for (const std::size_t rank : traced_ranks(run)) {
    Row row{.rank = rank, .events = read_trace(run.traces[rank])};
    std::erase_if(row.events, [](const TimelineEvent& event) {
      return std::abs(event.begin) > longest || std::abs(event.end) > longest;
    });
    if (!row.events.empty())
      rows.push_back(std::move(row));
  }
  return rows;
}

struct Window {
  double begin = INFINITY;
  double end = -INFINITY;
};

Window window_of(const std::vector<Row>& rows) {
  Window window;
  for (const Row& row : rows)
    for (const TimelineEvent& event : row.events) {
      window.begin = std::min(window.begin, event.begin);
      window.end = std::max(window.end, event.end);
    }
  return window.begin < window.end ? window : Window{0, 1};
}

bool is_of(const TimelineEvent& event, Phase phase) { return event.category == std::string_view(to_string(phase)); }

bool computes(const TimelineEvent& event) { return is_of(event, Phase::forward) || is_of(event, Phase::backward); }

constexpr const char* weight_kind = "weight";
constexpr const char* odd_suffix = " odd";

// A phase; the weight part of backward, and chunks in turn, are kinds of their own.
std::string block_kind(const TimelineEvent& event) {
  if (is_of(event, Phase::backward) && is_weight_text(event.name))
    return weight_kind;
  return std::string(event.category) + (computes(event) && event.chunk % 2 == 1 ? odd_suffix : "");
}

// A rectangle: one event, or several narrow ones of a kind.
struct Block {
  std::string kind;
  const TimelineEvent* event = nullptr;
  double begin = 0;
  double end = 0;
  int num_events = 1;
};

bool is_background(const TimelineEvent& event) { return event.track == communication_track; }

// Waiting lies behind, then what contains before what it contains.
bool lies_below(const TimelineEvent* a, const TimelineEvent* b) {
  const bool a_waits = is_of(*a, Phase::bubble);
  const bool b_waits = is_of(*b, Phase::bubble);
  if (a_waits != b_waits)
    return a_waits;
  return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
}

std::vector<Block> blocks_of(const Row& row, double narrowest) {
  std::vector<const TimelineEvent*> events;
  for (const TimelineEvent& event : row.events)
    if (event.end > event.begin)
      events.push_back(&event);
  std::stable_sort(events.begin(), events.end(), lies_below);
  std::vector<Block> blocks;
  for (const bool background : {false, true}) {
    const std::size_t first = blocks.size();
    for (const TimelineEvent* event : events) {
      if (is_background(*event) != background)
        continue;
      const std::string kind = block_kind(*event);
      Block* const last = blocks.size() > first ? &blocks.back() : nullptr;
      const bool joins = last != nullptr && last->kind == kind && event->begin - last->end < narrowest &&
                         std::min(event->end - event->begin, last->end - last->begin) < narrowest;
      if (joins) {
        last->end = std::max(last->end, event->end);
        ++last->num_events;
      } else {
        blocks.push_back({.kind = kind, .event = event, .begin = event->begin, .end = event->end});
      }
    }
  }
  std::erase_if(blocks, [&](const Block& block) { return block.end - block.begin < narrowest / 2; });
  return blocks;
}

// Coarser until the page stays small.
std::vector<std::vector<Block>> blocks_of(const std::vector<Row>& rows, const Window& window) {
  for (double narrowest = finest;; narrowest *= 2) {
    std::vector<std::vector<Block>> all;
    std::size_t count = 0;
    for (const Row& row : rows) {
      all.push_back(blocks_of(row, narrowest * (window.end - window.begin)));
      count += all.back().size();
    }
    if (count <= max_blocks || narrowest > 1)
      return all;
  }
}

// 1 - work / (ranks x window), the window from the first work of any rank to the last of any.
double idle_share(const std::vector<Row>& rows) {
  double begin = INFINITY;
  double end = -INFINITY;
  double work = 0;
  for (const Row& row : rows)
    for (const TimelineEvent& event : row.events)
      if (computes(event)) {
        begin = std::min(begin, event.begin);
        end = std::max(end, event.end);
        work += event.end - event.begin;
      }
  return end > begin ? 1 - work / (static_cast<double>(rows.size()) * (end - begin)) : 0;
}

// What is drawn first lies below.
constexpr std::array drawing_order{Phase::bubble,        Phase::other,    Phase::forward,    Phase::backward,
                                   Phase::optimizer,     Phase::data,     Phase::checkpoint, Phase::tensor_comm,
                                   Phase::pipeline_comm, Phase::data_comm};
static_assert(drawing_order.size() == num_phases);

// Those that the timeline has, with their names for people and their colours, in the order in which they are drawn.
ReportJson kinds_data(const std::vector<std::vector<Block>>& all) {
  std::set<std::string> present;
  for (const std::vector<Block>& blocks : all)
    for (const Block& block : blocks)
      present.insert(block.kind);
  const bool has_chunks = present.contains(std::string(to_string(Phase::forward)) + odd_suffix);
  ReportJson kinds = ReportJson::array();
  const auto add = [&](const std::string& kind, const std::string& text, const std::string& colour, bool computes) {
    if (present.contains(kind))
      kinds.push_back({{"kind", kind}, {"text", text}, {"colour", colour}, {"computes", computes}});
  };
  for (const Phase phase : drawing_order) {
    const std::string name = to_string(phase);
    const std::string colour = colour_of(phase);
    const bool computes = phase == Phase::forward || phase == Phase::backward;
    add(name, computes && has_chunks ? name + ", even chunks" : name, colour, computes);
    if (computes)
      add(name + odd_suffix, name + ", odd chunks", "deep-" + colour, true);
    if (phase == Phase::backward)
      add(weight_kind, "weight gradient", "green", true);
  }
  return kinds;
}

ReportJson block_data(const Block& block, const Window& window) {
  ReportJson data{{"kind", block.kind},
                  {"begin", number_data(block.begin - window.begin)},
                  {"end", number_data(block.end - window.begin)}};
  if (block.num_events > 1)
    data["events"] = block.num_events;
  else
    data["name"] = block.event->name;
  if (block.num_events == 1 && block.event->microbatch >= 0)
    data["microbatch"] = block.event->microbatch;
  if (is_background(*block.event))
    data["background"] = true;
  return data;
}

}  // namespace

ReportJson timeline_data(const RecordedRun& run) {
  std::vector<Row> rows = read_rows(run);
  const std::optional<Index> step = common_step(rows);
  if (!step)
    return {};
  for (Row& row : rows)
    std::erase_if(row.events, [&](const TimelineEvent& event) { return event.step != *step; });
  const Window window = window_of(rows);
  ReportJson shown = ReportJson::array();
  const auto all = blocks_of(rows, window);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ReportJson blocks = ReportJson::array();
    for (const Block& block : all[r])
      blocks.push_back(block_data(block, window));
    shown.push_back({{"rank", rows[r].rank}, {"blocks", blocks}});
  }
  return {{"step", *step},
          {"num_ranks", run.traces.size()},
          {"has_stages", run.config.layout.pipeline > 1},
          {"idle_share", number_data(idle_share(rows))},
          {"kinds", kinds_data(all)},
          {"rows", shown}};
}

}  // namespace espalier
