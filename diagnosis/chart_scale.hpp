// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

enum class ScaleKind { linear, logarithmic };

/// Neither infinite nor not a number, nor so large (1e100) that the difference of two such numbers could be.
bool is_drawable(double value);

/// Maps numbers to shares of an axis: 0 at its low end, 1 at its high end.
class ChartScale {
 public:
  /// Exactly from `low` to `high`, both drawable, and positive for a logarithmic scale; widened where they are equal.
  ChartScale(ScaleKind kind, double low, double high);

  double operator()(double value) const;
  ScaleKind kind() const { return kind_; }
  double low() const { return low_; }
  double high() const { return high_; }

  /// At most `most` (>= 2) round numbers inside, ascending: multiples of 1, 2 or 5 times a power of ten; powers of ten
  /// where a logarithmic scale spans several.
  std::vector<double> ticks(int most) const;

 private:
  ScaleKind kind_;
  double low_;
  double high_;
};

/// A scale that holds all drawable `values` and ends at round numbers. None: from 0 to 1. With `from_zero` it begins or
/// ends at 0. What is not positive is left out of a logarithmic one.
ChartScale round_scale(ScaleKind kind, const std::vector<double>& values, bool from_zero, int most_ticks);

/// A unit in which the labels of one axis are written: value / factor, e.g. {"ms", 1e-3}.
struct ChartUnit {
  std::string name;
  double factor = 1;
};

/// The largest of ns, us, ms, s, min and h (of B, KiB, MiB, GiB, TiB; of 1, k, M, G, T) in which `largest` is at
/// least 1.
ChartUnit unit_of_seconds(double largest);
ChartUnit unit_of_bytes(double largest);
ChartUnit unit_of_counts(double largest);

/// A number for a reader: `digits` significant ones, thousands set apart ("12,500"), powers of ten only where fixed
/// notation would be long; "not finite" and "infinite" for what is.
std::string number_text(double value, int digits = 4);

/// The same with its unit: "93.4 ms", "22.1k".
std::string seconds_text(double seconds);
std::string count_text(double count);

}  // namespace espalier
