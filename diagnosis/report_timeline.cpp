// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "diagnosis/chart_scale.hpp"
#include "diagnosis/report_cards.hpp"
#include "diagnosis/timeline_chart.hpp"
#include "io/trace_file.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_timelines = 64;

// All that were traced, or one of each stage where they are many: replicas and tensor ranks do alike.
std::vector<std::size_t> ranks_to_show(const RecordedRun& run) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < run.traces.size(); ++rank) {
    if (run.traces[rank].empty())
      continue;
    if (run.traces.size() > most_timelines) {
      const PerAxis place = run.setup.mesh.coordinates(static_cast<int>(rank));
      if (place[Axis::tp] != 0 || place[Axis::dp] != 0)
        continue;
    }
    ranks.push_back(rank);
  }
  ranks.resize(std::min(ranks.size(), most_timelines));
  return ranks;
}

// The last step that all of them traced; nothing where there is none.
std::optional<Index> common_step(const std::vector<TimelineRow>& rows) {
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

std::vector<TimelineRow> read_rows(const RecordedRun& run) {
  constexpr double longest = 1e9;  // seconds: no time of a run
  std::vector<TimelineRow> rows;
  for (const std::size_t rank : ranks_to_show(run)) {
    TimelineRow row{.label = fmt::format("rank {}", rank), .events = read_trace(run.traces[rank])};
    std::erase_if(row.events, [](const TimelineEvent& event) {
      return std::abs(event.begin) > longest || std::abs(event.end) > longest;
    });
    if (!row.events.empty())
      rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<LegendEntry> legend_of(const std::vector<TimelineRow>& rows) {
  std::set<std::string> kinds;
  for (const TimelineRow& row : rows)
    for (const TimelineEvent& event : row.events)
      kinds.insert(block_kind(event));
  const bool has_chunks = kinds.contains("forward odd");
  const std::vector<LegendEntry> all = {{has_chunks ? "forward, even chunks" : "forward", "forward"},
                                        {"forward, odd chunks", "forward odd"},
                                        {has_chunks ? "backward, even chunks" : "backward", "backward"},
                                        {"backward, odd chunks", "backward odd"},
                                        {"weight gradient", "weight"},
                                        {"bubble", "bubble"},
                                        {"tensor comm", "tensor_comm"},
                                        {"pipeline comm", "pipeline_comm"},
                                        {"data comm", "data_comm"},
                                        {"optimizer", "optimizer"},
                                        {"data", "data"},
                                        {"checkpoint", "checkpoint"},
                                        {"other", "other"}};
  std::vector<LegendEntry> legend;
  for (const LegendEntry& entry : all)
    if (kinds.contains(entry.colour))
      legend.push_back(entry);
  return legend;
}

// 1 - work / (ranks x window), the window from the first work of any rank to the last of any.
double idle_share(const std::vector<TimelineRow>& rows) {
  double begin = INFINITY;
  double end = -INFINITY;
  double work = 0;
  for (const TimelineRow& row : rows)
    for (const TimelineEvent& event : row.events)
      if (const std::string_view category = event.category; category == "forward" || category == "backward") {
        begin = std::min(begin, event.begin);
        end = std::max(end, event.end);
        work += event.end - event.begin;
      }
  return end > begin ? 1 - work / (static_cast<double>(rows.size()) * (end - begin)) : 0;
}

}  // namespace

std::optional<ReportCard> timeline_card(const RecordedRun& run) {
  std::vector<TimelineRow> rows = read_rows(run);
  const std::optional<Index> step = common_step(rows);
  if (!step)
    return std::nullopt;
  for (TimelineRow& row : rows)
    std::erase_if(row.events, [&](const TimelineEvent& event) { return event.step != *step; });
  const bool has_stages = run.setup.stages() > 1;
  const std::string idle = has_stages ? fmt::format(", {:.0f} % idle", 100 * idle_share(rows)) : "";
  ReportCard card{
      .id = "timeline",
      .title = has_stages ? "The pipeline in one step" : "One step",
      .subtitle = fmt::format(
          "step {}{}; numbers are micro-batches, the strip below is communication in the background", *step, idle),
      .legend = legend_of(rows),
      .left = "4.4rem",
      .is_wide = true};
  if (rows.size() < run.traces.size())
    card.note = fmt::format("{} of {} ranks{}.", rows.size(), run.traces.size(),
                            run.traces.size() > most_timelines ? ": one of each stage" : "");
  const std::string label = fmt::format("What each of {} ranks did in step {}{}", rows.size(), *step, idle);
  const TimelineChart chart{.label = label, .rows = std::move(rows)};
  card.views = {{"linear", draw(chart)}};
  return card;
}

}  // namespace espalier
