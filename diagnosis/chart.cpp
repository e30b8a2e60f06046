// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planning/markup.hpp"

namespace espalier {
namespace {

constexpr int most_x_ticks = 6;
constexpr int most_y_ticks = 6;
constexpr int plot_height = 200;  // px
constexpr int row_height = 26;    // px, of a bar with the gap below it
constexpr int bar_height = 18;

// Paths are drawn in a square of this size that is stretched over the plot.
constexpr double path_size = 1000;

double path_x(const ChartScale& scale, double value) { return path_size * scale(value); }
double path_y(const ChartScale& scale, double value) { return path_size * (1 - scale(value)); }

// Steps are whole numbers.
std::vector<double> step_ticks(const ChartScale& scale) {
  std::vector<double> ticks = scale.ticks(most_x_ticks);
  std::erase_if(ticks, [](double tick) { return tick != std::round(tick); });
  return ticks;
}

bool fits(const ChartScale& scale, double value) {
  return is_drawable(value) && (scale.kind() == ScaleKind::linear || value >= scale.low());
}

// What the script needs to read values back from the paths.
std::string scale_attributes(const ChartScale& x, const ChartScale& y, const ChartUnit& unit) {
  return fmt::format(R"( data-x="{} {}" data-y="{} {}" data-unit="{}" data-factor="{}"{})", x.low(), x.high(), y.low(),
                     y.high(), html_escaped(unit.name), unit.factor,
                     y.kind() == ScaleKind::logarithmic ? " data-log" : "");
}

std::string opened_plot(std::string_view attributes, std::string_view label, int height) {
  return fmt::format("<div class=\"plot\"{}>\n<svg role=\"img\" aria-label=\"{}\" height=\"{}\">\n", attributes,
                     html_escaped(label), height);
}

constexpr const char* opened_paths =
    R"(<svg class="paths" viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">)"
    "\n";
constexpr const char* closed_paths = "</svg>\n";
constexpr const char* closed_plot = "</svg>\n</div>\n";

std::string path_data(const ChartSeries& series, const ChartScale& x, const ChartScale& y) {
  std::string data;
  bool goes_on = false;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const ChartPoint& point = series.points[i];
    if (!fits(y, point.y)) {
      goes_on = false;
      continue;
    }
    fmt::format_to(std::back_inserter(data), "{}{:.1f},{:.1f}", goes_on ? "L" : "M", path_x(x, point.x),
                   path_y(y, point.y));
    const bool alone = !goes_on && (i + 1 == series.points.size() || !fits(y, series.points[i + 1].y));
    if (alone)
      data += "h0";  // a round line end: a dot
    goes_on = true;
  }
  return data;
}

std::string marks(const ChartSeries& series, const ChartScale& x, const ChartScale& y) {
  std::string text;
  for (const ChartPoint& point : series.points) {
    const std::string at = impl::percent(x(point.x));
    if (!fits(y, point.y))
      text += fmt::format("<line class=\"broken\" x1=\"{0}\" x2=\"{0}\" y2=\"9\"><title>step {1}: {2}</title></line>\n",
                          at, number_text(point.x, 10), number_text(point.y));
    else if (series.has_dots)
      text +=
          fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"><title>step {}: {}</title></circle>\n",
                      series.colour, at, impl::percent(1 - y(point.y)), number_text(point.x, 10), number_text(point.y));
  }
  return text;
}

ChartScale step_scale(const std::vector<double>& steps) {
  if (steps.empty())
    return {ScaleKind::linear, 0, 1};
  const auto [first, last] = std::minmax_element(steps.begin(), steps.end());
  return {ScaleKind::linear, *first, *last};
}

}  // namespace

namespace impl {

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * std::clamp(share, -1.0, 2.0)); }

std::string vertical_axis(const ChartScale& scale, const ChartUnit& unit) {
  std::string text;
  for (const double tick : scale.ticks(most_y_ticks))
    text += fmt::format(
        "<line class=\"grid\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>"
        "<text class=\"y\" x=\"-8\" y=\"{0}\" dy=\"4\">{1}</text>\n",
        percent(1 - scale(tick)), number_text(tick / unit.factor));
  return text;
}

std::string horizontal_axis(const std::vector<double>& ticks, const ChartScale& scale, const ChartUnit& unit,
                            std::string_view name) {
  std::string text = "<line class=\"axis\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>";
  for (const double tick : ticks)
    text += fmt::format("<text class=\"x\" x=\"{}\" y=\"100%\" dy=\"20\">{}</text>\n", percent(scale(tick)),
                        number_text(tick / unit.factor, 6));
  return text + fmt::format("<text class=\"name\" x=\"100%\" y=\"100%\" dy=\"36\">{}</text>\n", html_escaped(name));
}

}  // namespace impl

std::string draw(const LineChart& chart) {
  std::vector<double> steps;
  std::vector<double> values;
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points) {
      steps.push_back(point.x);
      values.push_back(point.y);
    }
  const ChartScale x = step_scale(steps);
  const ChartScale y = round_scale(chart.kind, values, chart.from_zero, most_y_ticks);
  std::string text = opened_plot(scale_attributes(x, y, chart.unit), chart.label, plot_height);
  text += impl::vertical_axis(y, chart.unit) + impl::horizontal_axis(step_ticks(x), x, {}, "step") + opened_paths;
  for (const ChartSeries& series : chart.series)
    text += fmt::format("<path class=\"line {}\" data-name=\"{}\" d=\"{}\"/>\n", series.colour,
                        html_escaped(series.name), path_data(series, x, y));
  text += closed_paths;
  for (const ChartMark& mark : chart.marks)
    if (mark.x >= x.low() && mark.x <= x.high())
      text += fmt::format("<line class=\"mark-line\" x1=\"{0}\" x2=\"{0}\" y2=\"100%\"><title>{1}</title></line>\n",
                          impl::percent(x(mark.x)), html_escaped(mark.text));
  for (const ChartSeries& series : chart.series)
    text += marks(series, x, y);
  return text + closed_plot;
}

std::string draw(const StackedChart& chart) {
  const std::vector<double>& steps = chart.columns.x;
  std::vector<double> sums(steps.size(), 0.0);
  std::vector<std::vector<double>> edges = {sums};  // from the ground up: one more than columns
  for (const std::vector<double>& column : chart.columns.columns) {
    for (std::size_t i = 0; i < steps.size(); ++i)
      sums[i] += std::max(0.0, column[i]);
    edges.push_back(sums);
  }
  const ChartScale x = step_scale(steps);
  const ChartScale y =
      round_scale(ScaleKind::linear, chart.top > 0 ? std::vector<double>{chart.top} : sums, true, most_y_ticks);
  // A single step is a block over the whole width.
  const bool alone = steps.size() == 1;
  const std::size_t corners = alone ? 2 : steps.size();
  const auto add_corner = [&](std::string& data, std::size_t edge, std::size_t i) {
    fmt::format_to(std::back_inserter(data), "{}{:.1f},{:.1f}", data.empty() ? 'M' : 'L',
                   alone ? path_size * static_cast<double>(i) : path_x(x, steps[i]),
                   path_y(y, edges[edge][alone ? 0 : i]));
  };
  std::string text = opened_plot(scale_attributes(x, y, chart.unit) + " data-stacked", chart.label, plot_height);
  text += impl::vertical_axis(y, chart.unit) + impl::horizontal_axis(step_ticks(x), x, {}, "step") + opened_paths;
  for (std::size_t part = 0; part + 1 < edges.size(); ++part) {
    std::string data;  // upper edge forth, lower edge back
    for (std::size_t i = 0; i < corners; ++i)
      add_corner(data, part + 1, i);
    for (std::size_t i = corners; i-- > 0;)
      add_corner(data, part, i);
    text += fmt::format("<path class=\"area {}\" data-name=\"{}\" d=\"{}Z\"/>\n", chart.colours[part],
                        html_escaped(chart.names[part]), data);
  }
  return text + closed_paths + closed_plot;
}

std::string draw(const BarChart& chart) {
  const auto shown = [](double value) { return is_drawable(value) && value > 0 ? value : 0.0; };
  std::vector<double> totals;
  for (const BarRow& row : chart.rows) {
    double total = 0;
    for (const double value : row.values)
      total += shown(value);
    totals.push_back(total);
  }
  const double largest = totals.empty() ? 0 : *std::max_element(totals.begin(), totals.end());
  const ChartScale x(ScaleKind::linear, 0, largest > 0 ? largest : 1);
  std::string text = opened_plot(" data-bars", chart.label, row_height * static_cast<int>(chart.rows.size()));
  std::vector<double> ticks = ChartScale(ScaleKind::linear, 0, x.high() / chart.unit.factor).ticks(most_x_ticks);
  for (double& tick : ticks)  // round in the unit that is shown
    tick *= chart.unit.factor;
  text += impl::horizontal_axis(ticks, x, chart.unit, chart.unit.name);
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const BarRow& row = chart.rows[r];
    const int top = row_height * static_cast<int>(r) + (row_height - bar_height) / 2;
    text +=
        fmt::format("<text class=\"y\" x=\"-8\" y=\"{}\">{}</text>\n", top + bar_height - 5, html_escaped(row.label));
    double left = 0;
    for (std::size_t part = 0; part < row.values.size(); ++part) {
      const double value = shown(row.values[part]);
      if (value == 0)
        continue;
      text += fmt::format(
          "<rect class=\"{}{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">"
          "<title>{}, {}: {} {} ({:.1f} %)</title></rect>\n",
          chart.colours[part], row.is_predicted ? " predicted" : "", impl::percent(x(left)), top,
          impl::percent(x(value)), bar_height, html_escaped(row.label), html_escaped(chart.names[part]),
          number_text(value / chart.unit.factor), html_escaped(chart.unit.name), 100 * value / totals[r]);
      left += value;
    }
  }
  return text + closed_plot;
}

}  // namespace espalier
