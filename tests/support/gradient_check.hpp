// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "tests/support/allclose.hpp"

namespace espalier::test {

/// Compares `gradient` with finite differences of the scalar function f(point) in fp64. Five points give an error of
/// order h^4, so that 1e-8 can be asked for. Of a long vector `samples` entries are taken, the first and last with
/// them.
template <class F>
testing::AssertionResult gradient_check(const F& f, Values point, const Values& gradient, std::size_t samples = 24,
                                        double relative = 1e-8, const std::vector<Index>& shape = {}) {
  if (point.size() != gradient.size())
    return testing::AssertionFailure() << gradient.size() << " gradients of " << point.size() << " variables";
  constexpr double h = 1e-3;
  const RandomStream choice(7, "gradient_check");
  const bool all = point.size() <= samples;
  Values expected = gradient;  // entries not sampled stay as they are
  double scale = 0;
  for (const double g : gradient)
    scale = std::max(scale, std::abs(g));
  for (std::size_t s = 0; s < (all ? point.size() : samples); ++s) {
    const std::size_t i = all || s == 0 ? s : s == 1 ? point.size() - 1 : choice.bits(s) % point.size();
    const double x = point[i];
    const auto at = [&](double step) {
      point[i] = x + step * h;
      const double value = f(point);
      point[i] = x;
      return value;
    };
    expected[i] = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * h);
    if (!(std::abs(gradient[i] - expected[i]) <= relative * std::max(scale, 1e-3)))
      return testing::AssertionFailure() << "gradient" << index_text(i, shape) << " is " << gradient[i]
                                         << ", finite differences give " << expected[i] << ", off by "
                                         << gradient[i] - expected[i] << "; the largest gradient is " << scale;
  }
  return testing::AssertionSuccess();
}

/// sum_i weights(i) * values(i): makes a scalar function of an op; the weights are its output gradient.
inline double dot(const Values& weights, const Values& values) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    sum += weights[i] * values[i];
  return sum;
}

}  // namespace espalier::test
