// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/chart_points.hpp"
#include "diagnosis/chart_scale.hpp"

/// Charts as inline SVG for report_page. A plot is as wide as its place: positions are shares of its width, texts and
/// line widths stay as they are. Colours are CSS classes, named after phases and categories: light and dark are the
/// page's.
namespace espalier {

struct ChartSeries {
  std::string name;
  std::string colour;  ///< a CSS class
  std::vector<ChartPoint> points = {};
  bool has_dots = false;  ///< few points that matter one by one
};

/// A place on the axis of steps.
struct ChartMark {
  double x = 0;
  std::string text;
};

struct LineChart {
  std::string label;  ///< what a reader hears who does not see the picture
  std::vector<ChartSeries> series = {};
  std::vector<ChartMark> marks = {};  ///< dashed lines over the whole height
  ChartUnit unit = {};                ///< of y
  ScaleKind kind = ScaleKind::linear;
  bool from_zero = false;
};

/// Curves over steps. What cannot be drawn (is_drawable, or not positive on a logarithmic scale) is a gap with a mark
/// at the top.
std::string draw(const LineChart& chart);

struct StackedChart {
  std::string label;
  std::vector<std::string> names = {};    ///< of the columns, from the bottom up
  std::vector<std::string> colours = {};  ///< CSS classes of the columns
  ChartColumns columns = {};              ///< x: steps
  ChartUnit unit = {};
  double top = 0;  ///< end of the vertical axis, where a few long steps would make all others small; 0: the largest sum
};

/// Areas over steps, one on the other.
std::string draw(const StackedChart& chart);

struct BarRow {
  std::string label;
  std::vector<double> values = {};  ///< a part each; what cannot be drawn, or is negative, is left out
  bool is_predicted = false;
};

struct BarChart {
  std::string label;
  std::vector<std::string> names = {};    ///< of the parts
  std::vector<std::string> colours = {};  ///< CSS classes of the parts
  std::vector<BarRow> rows = {};
  ChartUnit unit = {};
};

/// Horizontal bars of parts, one below the other.
std::string draw(const BarChart& chart);

namespace impl {

/// "12.34%"
std::string percent(double share);

/// Where the labels of an axis of numbers lie, as lines and texts.
std::string vertical_axis(const ChartScale& scale, const ChartUnit& unit);
std::string horizontal_axis(const std::vector<double>& ticks, const ChartScale& scale, const ChartUnit& unit,
                            std::string_view name);

}  // namespace impl
}  // namespace espalier
