// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/tensors.hpp"

namespace espalier::test {

/// How far an op may be from the plain loops, relative to the size of its values. 16-bit types: their rounding.
template <class T>
constexpr double tolerance = 1e-5;
template <>
inline constexpr double tolerance<double> = 1e-12;
template <>
inline constexpr double tolerance<bfloat16> = 0x1p-8;
template <>
inline constexpr double tolerance<float16> = 0x1p-11 + 1e-5;

inline std::string index_text(std::size_t at, const std::vector<Index>& shape) {
  if (shape.empty())
    return fmt::format("[{}]", at);
  std::string text;
  auto rest = static_cast<Index>(at);
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    text = fmt::format("{}{}", rest % shape[dim], text.empty() ? "" : ", " + text);
    rest /= shape[dim];
  }
  return "[" + text + "]";
}

/// |actual - expected| <= relative * (|expected| + mean of |expected|) for each element; two NaN are equal.
/// The message shows the first wrong elements with their index in an array of the given shape.
inline testing::AssertionResult allclose(const Values& actual, const Values& expected, double relative,
                                         const std::vector<Index>& shape = {}) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure() << actual.size() << " elements, wanted " << expected.size();
  double mean = 0;
  for (const double value : expected)
    mean += std::isfinite(value) ? std::abs(value) / static_cast<double>(expected.size()) : 0;
  std::size_t wrong = 0;
  double worst = 0;
  std::string first;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (error <= relative * (std::abs(expected[i]) + mean) || (std::isnan(actual[i]) && std::isnan(expected[i])))
      continue;
    worst = std::isfinite(error) ? std::max(worst, error) : HUGE_VAL;
    if (++wrong <= 5)
      first += fmt::format("\n  {}: got {:.17g}, wanted {:.17g}, off by {:.3g}", index_text(i, shape), actual[i],
                           expected[i], error);
  }
  if (wrong == 0)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << wrong << " of " << actual.size() << " elements differ by more than " << relative
                                     << " relative, at most by " << worst << "; the first:" << first;
}

/// |actual - expected| / |expected|, of all elements together.
inline double relative_error(const Values& actual, const Values& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual.at(i) - expected[i]) * (actual.at(i) - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace espalier::test
