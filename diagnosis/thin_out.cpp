// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/thin_out.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace espalier {
namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

// The points of [begin, end) that a reader would miss, in their order.
void keep_extremes(const std::vector<CurvePoint>& points, std::size_t begin, std::size_t end,
                   std::vector<CurvePoint>& kept) {
  std::size_t lowest = none;
  std::size_t highest = none;
  std::size_t broken = none;
  for (std::size_t i = begin; i < end; ++i) {
    if (!is_drawable(points[i].y)) {
      broken = i;
      continue;
    }
    if (lowest == none || points[i].y < points[lowest].y)
      lowest = i;
    if (highest == none || points[i].y > points[highest].y)
      highest = i;
  }
  std::array<std::size_t, 3> chosen = {lowest, highest, broken};
  std::sort(chosen.begin(), chosen.end());
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] != none && (i == 0 || chosen[i] != chosen[i - 1]))
      kept.push_back(points[chosen[i]]);
}

}  // namespace

bool is_drawable(double value) { return std::abs(value) <= 1e100; }

std::vector<CurvePoint> thin_out(const std::vector<CurvePoint>& points, std::size_t most) {
  if (points.size() <= most)
    return points;
  const bool all_finite =
      std::all_of(points.begin(), points.end(), [](const CurvePoint& point) { return is_drawable(point.y); });
  const std::size_t stretches = (most - 2) / (all_finite ? 2 : 3);
  const std::size_t inner = points.size() - 2;
  std::vector<CurvePoint> kept = {points.front()};
  for (std::size_t i = 0; i < stretches; ++i)
    keep_extremes(points, 1 + i * inner / stretches, 1 + (i + 1) * inner / stretches, kept);
  kept.push_back(points.back());
  return kept;
}

CurveColumns average_out(const CurveColumns& columns, std::size_t most) {
  const std::size_t size = columns.x.size();
  const std::size_t stretches = std::min(size, most);
  const auto mean = [&](const std::vector<double>& values, std::size_t stretch) {
    const std::size_t begin = stretch * size / stretches;
    const std::size_t end = (stretch + 1) * size / stretches;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      sum += is_drawable(values[i]) ? values[i] : 0.0;
    return sum / static_cast<double>(end - begin);
  };
  const auto means = [&](const std::vector<double>& values) {
    std::vector<double> result(stretches);
    for (std::size_t i = 0; i < stretches; ++i)
      result[i] = mean(values, i);
    return result;
  };
  CurveColumns result{.x = means(columns.x), .columns = {}};
  for (const std::vector<double>& column : columns.columns)
    result.columns.push_back(means(column));
  return result;
}

}  // namespace espalier
