// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "diagnosis/chart_points.hpp"
#include "diagnosis/chart_scale.hpp"
#include "tests/diagnosis/not_finite.hpp"

namespace {

using namespace espalier;

TEST(ChartScale, maps_its_ends_to_zero_and_one) {
  const ChartScale linear(ScaleKind::linear, -2, 6);
  EXPECT_EQ(linear(-2), 0);
  EXPECT_EQ(linear(2), 0.5);
  EXPECT_EQ(linear(6), 1);
  const ChartScale logarithmic(ScaleKind::logarithmic, 1e-4, 1);
  EXPECT_NEAR(logarithmic(1e-4), 0, 1e-15);
  EXPECT_NEAR(logarithmic(1e-2), 0.5, 1e-15);
  EXPECT_NEAR(logarithmic(1), 1, 1e-15);
}

TEST(ChartScale, ticks_are_round_and_inside) {
  EXPECT_EQ(ChartScale(ScaleKind::linear, 0, 10).ticks(6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ChartScale(ScaleKind::linear, 0, 10).ticks(5), (std::vector<double>{0, 5, 10}));
  EXPECT_EQ(ChartScale(ScaleKind::linear, 1, 1400).ticks(6), (std::vector<double>{500, 1000}));
  EXPECT_EQ(ChartScale(ScaleKind::linear, 0, 0.3).ticks(4), (std::vector<double>{0, 0.1, 0.2, 0.3}));
  EXPECT_EQ(ChartScale(ScaleKind::linear, -3, 4).ticks(8), (std::vector<double>{-3, -2, -1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(ChartScale(ScaleKind::logarithmic, 1, 60).ticks(6), (std::vector<double>{1, 2, 5, 10, 20, 50}));
  EXPECT_EQ(ChartScale(ScaleKind::logarithmic, 0.5, 5e4).ticks(6), (std::vector<double>{1, 10, 100, 1000, 10000}));
  // Less than a factor of two has no 1, 2, 5: as on a linear axis.
  EXPECT_EQ(ChartScale(ScaleKind::logarithmic, 1.1, 1.9).ticks(6), (std::vector<double>{1.2, 1.4, 1.6, 1.8}));
}

TEST(ChartScale, any_range_has_at_most_the_ticks_asked_for) {
  const std::vector<double> ends = {-1e90, -17, -1e-7, 0, 1e-98, 3e-9, 0.7, 0.7000001, 1, 9.99, 1e6, 1e6 + 1, 3e90};
  for (const double low : ends)
    for (const double high : ends)
      for (const int most : {2, 3, 6, 11}) {
        if (low > high)
          continue;
        for (const ScaleKind kind : {ScaleKind::linear, ScaleKind::logarithmic}) {
          if (kind == ScaleKind::logarithmic && low <= 0)
            continue;
          const ChartScale scale(kind, low, high);
          const std::vector<double> ticks = scale.ticks(most);
          EXPECT_LE(static_cast<int>(ticks.size()), most) << low << " to " << high;
          for (const double tick : ticks) {
            EXPECT_GE(scale(tick), -1e-6) << tick << " in " << low << " to " << high;
            EXPECT_LE(scale(tick), 1 + 1e-6) << tick << " in " << low << " to " << high;
          }
        }
      }
}

TEST(ChartScale, equal_ends_are_widened) {
  const ChartScale scale(ScaleKind::linear, 3, 3);
  EXPECT_LT(scale.low(), 3);
  EXPECT_GT(scale.high(), 3);
  EXPECT_NEAR(scale(3), 0.5, 1e-12);
  EXPECT_NEAR(ChartScale(ScaleKind::logarithmic, 3, 3)(3), 0.5, 1e-12);
  EXPECT_NEAR(ChartScale(ScaleKind::linear, 0, 0)(0), 0.5, 1e-12);
}

TEST(ChartScale, round_scale_holds_what_can_be_drawn) {
  const ChartScale scale = round_scale(ScaleKind::linear, {1.93, not_a_number, 5.6, infinity, 1e200}, false, 6);
  EXPECT_EQ(scale.low(), 1);
  EXPECT_EQ(scale.high(), 6);
  EXPECT_EQ(round_scale(ScaleKind::linear, {1.93, 5.6}, true, 6).low(), 0);
  EXPECT_EQ(round_scale(ScaleKind::linear, {-7, -2}, true, 6).high(), 0);
  const ChartScale positive = round_scale(ScaleKind::logarithmic, {0.5, 0, -3, 8, not_a_number}, false, 6);
  EXPECT_EQ(positive.low(), 0.5);
  EXPECT_EQ(positive.high(), 8);
  for (const ScaleKind kind : {ScaleKind::linear, ScaleKind::logarithmic})
    EXPECT_LT(round_scale(kind, {not_a_number, -infinity}, false, 6).low(), round_scale(kind, {}, false, 6).high());
}

TEST(ChartScale, numbers_for_readers) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(1.90983), "1.91");
  EXPECT_EQ(number_text(1.90983, 6), "1.90983");
  EXPECT_EQ(number_text(12500), "12,500");
  EXPECT_EQ(number_text(-1234567, 3), "-1,234,567");
  EXPECT_EQ(number_text(0.00025), "0.00025");
  EXPECT_EQ(number_text(3e-5), "3e-05");
  EXPECT_EQ(number_text(999.99), "1,000");
  EXPECT_EQ(number_text(not_a_number), "not a number");
  EXPECT_EQ(number_text(-infinity), "-infinite");
  EXPECT_EQ(seconds_text(0.0934), "93.4 ms");
  EXPECT_EQ(seconds_text(150), "2.5 min");
  EXPECT_EQ(unit_of_bytes(1.25e9).name, "GiB");
  EXPECT_EQ(unit_of_bytes(1023).name, "B");
  EXPECT_EQ(count_text(22100), "22.1k");
  EXPECT_EQ(unit_of_seconds(0).name, "ns");
}

TEST(ChartPoints, thinning_keeps_every_spike_and_the_ends) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000000; ++i)
    points.push_back({static_cast<double>(i), std::sin(i * 1e-4)});
  points[123456].y = 99;
  points[777777].y = -99;
  points[500000].y = not_a_number;
  const std::vector<ChartPoint> kept = thin_out(points, 1500);
  EXPECT_LE(kept.size(), 1500u);
  EXPECT_GE(kept.size(), 900u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 999999);
  const auto holds = [&](double x) {
    return std::any_of(kept.begin(), kept.end(), [&](const ChartPoint& point) { return point.x == x; });
  };
  EXPECT_TRUE(holds(123456));
  EXPECT_TRUE(holds(777777));
  EXPECT_TRUE(holds(500000));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(ChartPoints, few_points_stay_as_they_are) {
  const std::vector<ChartPoint> points = {{1, 2}, {2, not_a_number}, {3, 4}};
  EXPECT_EQ(thin_out(points, 8).size(), 3u);
  EXPECT_TRUE(thin_out({}, 8).empty());
}

TEST(ChartPoints, averaging_keeps_the_mean) {
  ChartColumns columns{.x = {}, .columns = {{}, {}}};
  for (int i = 0; i < 1000; ++i) {
    columns.x.push_back(i);
    columns.columns[0].push_back(i);
    columns.columns[1].push_back(i == 3 ? not_a_number : 1);
  }
  const ChartColumns few = average_out(columns, 10);
  ASSERT_EQ(few.x.size(), 10u);
  EXPECT_EQ(few.columns[0][0], 49.5);
  EXPECT_EQ(few.columns[0][9], 949.5);
  EXPECT_EQ(few.columns[1][0], 0.99);
  EXPECT_EQ(average_out(columns, 5000).x, columns.x);
  EXPECT_TRUE(average_out({}, 10).x.empty());
}

}  // namespace
