// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/thin_out.hpp"
#include "tests/diagnosis/not_finite.hpp"

namespace {

using namespace espalier;

TEST(ThinOut, what_can_be_drawn_is_finite_and_not_huge) {
  for (const double value : {0.0, -1e99, 1e-300, 1e100})
    EXPECT_TRUE(is_drawable(value)) << value;
  for (const double value : {not_a_number, infinity, -infinity, 1e101})
    EXPECT_FALSE(is_drawable(value)) << value;
}

TEST(ThinOut, thinning_keeps_every_spike_and_the_ends) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 1000000; ++i)
    points.push_back({static_cast<double>(i), std::sin(i * 1e-4)});
  points[123456].y = 99;
  points[777777].y = -99;
  points[500000].y = not_a_number;
  const std::vector<CurvePoint> kept = thin_out(points, 1500);
  EXPECT_LE(kept.size(), 1500u);
  EXPECT_GE(kept.size(), 900u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 999999);
  const auto holds = [&](double x) {
    return std::any_of(kept.begin(), kept.end(), [&](const CurvePoint& point) { return point.x == x; });
  };
  EXPECT_TRUE(holds(123456));
  EXPECT_TRUE(holds(777777));
  EXPECT_TRUE(holds(500000));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(ThinOut, few_points_stay_as_they_are) {
  const std::vector<CurvePoint> points = {{1, 2}, {2, not_a_number}, {3, 4}};
  EXPECT_EQ(thin_out(points, 8).size(), 3u);
  EXPECT_TRUE(thin_out({}, 8).empty());
}

TEST(ThinOut, averaging_keeps_the_mean) {
  CurveColumns columns{.x = {}, .columns = {{}, {}}};
  for (int i = 0; i < 1000; ++i) {
    columns.x.push_back(i);
    columns.columns[0].push_back(i);
    columns.columns[1].push_back(i == 3 ? not_a_number : 1);
  }
  const CurveColumns few = average_out(columns, 10);
  ASSERT_EQ(few.x.size(), 10u);
  EXPECT_EQ(few.columns[0][0], 49.5);
  EXPECT_EQ(few.columns[0][9], 949.5);
  EXPECT_EQ(few.columns[1][0], 0.99);
  EXPECT_EQ(average_out(columns, 5000).x, columns.x);
  EXPECT_TRUE(average_out({}, 10).x.empty());
}

}  // namespace
