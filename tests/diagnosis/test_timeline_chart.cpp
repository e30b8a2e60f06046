// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/timeline_chart.hpp"

namespace {

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

std::size_t num_blocks(const std::string& svg) {
  std::size_t found = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++found;
  return found;
}

TEST(Timeline, blocks_lie_where_their_time_is) {
  const std::string svg = draw(TimelineChart{
      .label = "step",
      .rows = {
          {.label = "rank 0",
           .events = {{.name = "F0", .category = "forward", .chunk = 0, .microbatch = 0, .begin = 10, .end = 10.5},
                      {.name = "W0", .category = "backward", .chunk = 0, .microbatch = 0, .begin = 10.5, .end = 11}}},
          {.label = "rank <1>",
           .events = {
               {.name = "B3", .category = "backward", .chunk = 1, .microbatch = 3, .begin = 11, .end = 14},
               {.name = "dp", .category = "data_comm", .begin = 12, .end = 14, .track = communication_track}}}}});
  EXPECT_EQ(num_blocks(svg), 4u);
  EXPECT_THAT(svg, HasSubstr("<rect class=\"forward\" x=\"0.00%\" width=\"12.50%\" height=\"24\"><title>F0: 500 ms"));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"weight\" x=\"12.50%\""));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"backward odd\" x=\"25.00%\" width=\"75.00%\""));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"data_comm\" x=\"50.00%\" y=\"24\""));
  EXPECT_THAT(svg, HasSubstr(">3</text>"));
  EXPECT_THAT(svg, HasSubstr("rank &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr(">s</text>"));
}

TEST(Timeline, what_contains_lies_below_what_it_contains) {
  const std::string svg =
      draw(TimelineChart{.label = "step",
                         .rows = {{.label = "rank 0",
                                   .events = {{.name = "inner", .category = "tensor_comm", .begin = 0.2, .end = 0.6},
                                              {.name = "outer", .category = "forward", .begin = 0, .end = 1},
                                              {.name = "idle", .category = "bubble", .begin = 0.1, .end = 2}}}}});
  EXPECT_LT(svg.find("idle:"), svg.find("outer:"));
  EXPECT_LT(svg.find("outer:"), svg.find("inner:"));
}

// 64 ranks of 1000 operations: fewer blocks, and yet no time is lost.
TEST(Timeline, many_blocks_become_fewer) {
  TimelineChart chart{.label = "many"};
  for (int rank = 0; rank < 64; ++rank) {
    TimelineRow& row = chart.rows.emplace_back(TimelineRow{.label = "rank"});
    for (int i = 0; i < 1000; ++i)
      row.events.push_back(
          {.name = "F", .category = "forward", .microbatch = i, .begin = i * 1e-3, .end = (i + 1) * 1e-3});
  }
  const std::string svg = draw(chart);
  EXPECT_LE(num_blocks(svg), 3000u);
  EXPECT_GE(num_blocks(svg), 64u);
  EXPECT_THAT(svg, HasSubstr("times forward"));
  EXPECT_LT(svg.size(), 500000u);
}

TEST(Timeline, nothing_is_a_chart_too) {
  EXPECT_THAT(draw(TimelineChart{.label = "none"}), HasSubstr("<svg"));
  const std::string svg = draw(TimelineChart{
      .label = "instant",
      .rows = {{.label = "rank 0", .events = {{.name = "x", .category = "forward", .begin = 5, .end = 5}}}}});
  EXPECT_EQ(num_blocks(svg), 0u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
