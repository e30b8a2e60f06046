// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/chart_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "planning/strings.hpp"

namespace espalier {
namespace {

constexpr std::array<double, 3> round_steps = {1, 2, 5};

// Ends that were computed may miss a tick by a rounding error.
constexpr double slack = 1e-9;

// Beyond these, differences and steps overflow or vanish.
constexpr double most_drawable = 1e100;
constexpr double least_drawable = 1e-100;

// The smallest of 1, 2, 5 times a power of ten that is not below.
double round_up_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double step : round_steps)
    if (step * power >= least * (1 - slack))
      return step * power;
  return 10 * power;
}

// A multiple of the step, written as its nearest decimal: 0.3, not 0.30000000000000004.
double multiple(double step, double count) { return step < 1 ? count / std::round(1 / step) : count * step; }

std::vector<double> linear_ticks(double low, double high, int most) {
  // One step too fine gives a tick too many where both ends are ticks.
  for (double step = round_up_step((high - low) / most);; step = round_up_step(step * 1.5)) {
    const double first = std::ceil(low / step - slack) + 0.0;  // no -0
    const double last = std::floor(high / step + slack);
    if (last - first + 1 > most)
      continue;
    std::vector<double> ticks;
    for (double i = first; i <= last; ++i)
      ticks.push_back(step < 1e-12 ? i * step : multiple(step, i));
    return ticks;
  }
}

// 1, 2, 5, 10, ... or, where these are too many, every n-th power of ten.
std::vector<double> logarithmic_ticks(double low, double high, int most) {
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  const auto last = static_cast<int>(std::ceil(std::log10(high)));
  const auto inside = [&](double value) { return value >= low * (1 - slack) && value <= high * (1 + slack); };
  std::vector<double> ticks;
  for (int power = first; power <= last; ++power)
    for (const double step : round_steps)
      if (const double value = step * std::pow(10.0, power); inside(value))
        ticks.push_back(value);
  for (int every = 1; static_cast<int>(ticks.size()) > most; ++every) {
    ticks.clear();
    for (int power = first; power <= last; ++power)
      if (const double value = std::pow(10.0, power); power % every == 0 && inside(value))
        ticks.push_back(value);
  }
  return ticks.size() < 3 && high < 10 * low ? linear_ticks(low, high, most) : ticks;
}

ChartUnit largest_unit(double largest, std::initializer_list<ChartUnit> ascending) {
  const ChartUnit* chosen = ascending.begin();
  for (const ChartUnit& unit : ascending)
    if (std::abs(largest) >= unit.factor * (1 - slack))
      chosen = &unit;
  return *chosen;
}

std::string with_thousands(std::string digits) {
  const std::size_t start = digits.starts_with('-') ? 1 : 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  for (std::size_t i = point; i > start + 3; i -= 3)
    digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace

bool is_drawable(double value) { return std::abs(value) <= most_drawable; }

ChartScale::ChartScale(ScaleKind kind, double low, double high) : kind_(kind), low_(low), high_(high) {
  ESPALIER_ASSERT(is_drawable(low) && is_drawable(high) && low <= high, "espalier::ChartScale: no range");
  ESPALIER_ASSERT(kind == ScaleKind::linear || low >= least_drawable,
                  "espalier::ChartScale: a logarithm of what is not positive");
  // Less than this apart, numbers are equal to a reader, and ticks between them have no short names.
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low > std::max(1e-9 * size, least_drawable))
    return;
  if (kind == ScaleKind::logarithmic) {
    low_ = low / 2;
    high_ = high * 2;
  } else {
    const double margin = size > 10 * least_drawable ? size * 0.1 : 1;
    low_ = low - margin;
    high_ = high + margin;
  }
}

double ChartScale::operator()(double value) const {
  if (kind_ == ScaleKind::logarithmic)
    return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

std::vector<double> ChartScale::ticks(int most) const {
  return kind_ == ScaleKind::linear ? linear_ticks(low_, high_, most) : logarithmic_ticks(low_, high_, most);
}

ChartScale round_scale(ScaleKind kind, const std::vector<double>& values, bool from_zero, int most_ticks) {
  double low = INFINITY;
  double high = -INFINITY;
  for (const double value : values)
    if (is_drawable(value) && (kind == ScaleKind::linear || value >= least_drawable)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  if (low > high)
    return kind == ScaleKind::linear ? ChartScale(kind, 0, 1) : ChartScale(kind, 0.1, 10);
  if (kind == ScaleKind::logarithmic)
    return {kind, low, high};
  if (from_zero) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  const ChartScale tight(kind, low, high);
  const std::vector<double> ticks = tight.ticks(most_ticks);
  if (ticks.size() < 2)
    return tight;
  const double step = ticks[1] - ticks[0];
  return {kind, step * std::floor(tight.low() / step + slack), step * std::ceil(tight.high() / step - slack)};
}

ChartUnit unit_of_seconds(double largest) {
  return largest_unit(largest, {{"ns", 1e-9}, {"\u00b5s", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}});
}

ChartUnit unit_of_bytes(double largest) {
  return largest_unit(largest, {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}});
}

ChartUnit unit_of_counts(double largest) {
  return largest_unit(largest, {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}});
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value))
    return std::isnan(value) ? "not a number" : value > 0 ? "infinite" : "-infinite";
  if (value == 0)
    return "0";
  const double size = std::abs(value);
  if (size < 1e-4 || size >= 1e9)
    return fmt::format("{:.{}g}", value, digits);
  const auto before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  return with_thousands(without_trailing_zeros(fmt::format("{:.{}f}", value, std::max(0, digits - before_point))));
}

namespace {

std::string in_unit(double value, const ChartUnit& unit, const char* between) {
  return number_text(value / unit.factor, 3) + (unit.name.empty() ? "" : between + unit.name);
}

}  // namespace

std::string seconds_text(double seconds) { return in_unit(seconds, unit_of_seconds(seconds), " "); }
std::string count_text(double count) { return in_unit(count, unit_of_counts(count), ""); }

}  // namespace espalier
