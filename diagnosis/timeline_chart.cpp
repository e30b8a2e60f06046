// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/timeline_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "diagnosis/chart.hpp"
#include "planning/markup.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_blocks = 3000;  // about 100 bytes each
constexpr double finest = 2e-4;            // share of the width that is a third of a pixel
constexpr int most_ticks = 6;

// Sizes of a row, in px.
struct RowShape {
  int operations;
  int background;
  int gap;
  int pitch() const { return operations + background + gap; }
};

RowShape row_shape(std::size_t num_rows) {
  if (num_rows <= 8)
    return {24, 7, 9};
  return num_rows <= 24 ? RowShape{16, 5, 5} : RowShape{11, 3, 3};
}

struct Window {
  double begin = INFINITY;
  double end = -INFINITY;
  double share(double time) const { return (time - begin) / (end - begin); }
};

Window window_of(const std::vector<TimelineRow>& rows) {
  Window window;
  for (const TimelineRow& row : rows)
    for (const TimelineEvent& event : row.events) {
      window.begin = std::min(window.begin, event.begin);
      window.end = std::max(window.end, event.end);
    }
  return window.begin < window.end ? window : Window{0, 1};
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
  const bool a_waits = std::string_view(a->category) == "bubble";
  const bool b_waits = std::string_view(b->category) == "bubble";
  if (a_waits != b_waits)
    return a_waits;
  return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
}

std::vector<Block> blocks_of(const TimelineRow& row, double narrowest) {
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
std::vector<std::vector<Block>> blocks_of(const std::vector<TimelineRow>& rows, const Window& window) {
  for (double narrowest = finest;; narrowest *= 2) {
    std::vector<std::vector<Block>> all;
    std::size_t count = 0;
    for (const TimelineRow& row : rows) {
      all.push_back(blocks_of(row, narrowest * (window.end - window.begin)));
      count += all.back().size();
    }
    if (count <= most_blocks || narrowest > 1)
      return all;
  }
}

std::string block_svg(const Block& block, const Window& window, const RowShape& shape) {
  const double width = window.share(block.end) - window.share(block.begin);
  const bool background = is_background(*block.event);
  const std::string duration = seconds_text(block.end - block.begin);
  const std::string title = block.num_events == 1
                                ? fmt::format("{}: {}", html_escaped(block.event->name), duration)
                                : fmt::format("{} times {}: {}", block.num_events, block.event->category, duration);
  std::string text = fmt::format("<rect class=\"{}\" x=\"{}\"{} width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
                                 block.kind, impl::percent(window.share(block.begin)),
                                 background ? fmt::format(" y=\"{}\"", shape.operations) : "", impl::percent(width),
                                 background ? shape.background : shape.operations, title);
  if (background || block.num_events > 1 || block.event->microbatch < 0 || shape.operations < 14)
    return text;
  // Whether the number fits, on a wide page and on a narrow one.
  const std::string number = fmt::format("{}", block.event->microbatch);
  const auto digits = static_cast<double>(number.size());
  const bool is_work =
      block.kind.starts_with("forward") || block.kind.starts_with("backward") || block.kind == "weight";
  if (is_work && width >= 0.004 + 0.007 * digits)
    text += fmt::format("<text class=\"number {}{}\" x=\"{}\" y=\"{}\">{}</text>\n", block.kind,
                        width >= 0.015 + 0.025 * digits ? "" : " wide",
                        impl::percent(window.share((block.begin + block.end) / 2)), shape.operations / 2 + 4, number);
  return text;
}

}  // namespace

std::string block_kind(const TimelineEvent& event) {
  std::string kind = event.category;
  if (kind == "backward" && event.name.starts_with("W"))
    return "weight";
  if ((kind == "forward" || kind == "backward") && event.chunk % 2 == 1)
    kind += " odd";  // chunks in turn
  return kind;
}

std::string draw(const TimelineChart& chart) {
  const Window window = window_of(chart.rows);
  const RowShape shape = row_shape(chart.rows.size());
  const auto all = blocks_of(chart.rows, window);
  const ChartScale scale(ScaleKind::linear, 0, window.end - window.begin);
  const ChartUnit unit = unit_of_seconds(scale.high());
  std::string text =
      fmt::format("<div class=\"plot\" data-timeline>\n<svg role=\"img\" aria-label=\"{}\" height=\"{}\">\n",
                  html_escaped(chart.label), shape.pitch() * static_cast<int>(chart.rows.size()));
  text += impl::horizontal_axis(scale.ticks(most_ticks), scale, unit, unit.name);
  for (std::size_t r = 0; r < all.size(); ++r) {
    text +=
        fmt::format("<g transform=\"translate(0 {})\"><text class=\"y\" x=\"-8\" y=\"{}\">{}</text>\n",
                    shape.pitch() * static_cast<int>(r), shape.operations / 2 + 4, html_escaped(chart.rows[r].label));
    for (const Block& block : all[r])
      text += block_svg(block, window, shape);
    text += "</g>\n";
  }
  return text + "</svg>\n</div>\n";
}

}  // namespace espalier
