// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/chart.hpp"
#include "diagnosis/report_page.hpp"
#include "planning/markup.hpp"
#include "tests/diagnosis/not_finite.hpp"

namespace {

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

TEST(Chart, escapes_what_html_knows) {
  EXPECT_EQ(html_escaped("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(html_escaped("tree \xC3\xA4 \xE2\x82\xAC"), "tree \xC3\xA4 \xE2\x82\xAC");
  // Torn and overlong UTF-8, and control characters: none of them reaches a parser.
  EXPECT_EQ(html_escaped(std::string_view("a\xC3", 2)), "a\uFFFD");
  EXPECT_EQ(html_escaped("\xC0\xBC"), "\uFFFD\uFFFD");
  EXPECT_EQ(html_escaped("\xE2<b>"), "\uFFFD&lt;b&gt;");
  EXPECT_EQ(html_escaped(std::string_view("\0\x1B\n", 3)), "\\x00\\x1b\n");
}

TEST(Chart, a_line_goes_through_its_points) {
  const std::string svg = draw(LineChart{
      .label = "loss", .series = {{.name = "training", .colour = "train", .points = {{1, 0}, {3, 5}, {5, 10}}}}});
  EXPECT_THAT(svg, HasSubstr("M0.0,1000.0L500.0,500.0L1000.0,0.0"));
  EXPECT_THAT(svg, HasSubstr("data-x=\"1 5\" data-y=\"0 10\""));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
}

TEST(Chart, what_cannot_be_drawn_is_a_gap_with_a_mark) {
  LineChart chart{
      .label = "norm",
      .series = {
          {.name = "n", .colour = "norm", .points = {{1, 1}, {2, 2}, {3, infinity}, {4, 3}, {5, not_a_number}}}}};
  std::string svg = draw(chart);
  EXPECT_EQ(count(svg, "class=\"broken\""), 2u);
  EXPECT_THAT(svg, HasSubstr("step 3: infinite"));
  EXPECT_THAT(svg, HasSubstr("step 5: not a number"));
  EXPECT_THAT(svg, HasSubstr("h0\""));  // step 4 stands alone: a dot
  EXPECT_THAT(svg, Not(HasSubstr("inf,")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  chart.kind = ScaleKind::logarithmic;
  chart.series[0].points[1].y = 0;
  svg = draw(chart);
  EXPECT_EQ(count(svg, "class=\"broken\""), 3u);
  EXPECT_THAT(svg, HasSubstr("data-log"));
}

TEST(Chart, nothing_and_one_point_are_charts_too) {
  for (const auto& points : {std::vector<ChartPoint>{}, {{7, 1}}, {{7, not_a_number}}, {{1, 1e300}}}) {
    const std::string svg =
        draw(LineChart{.label = "x", .series = {{.name = "x", .colour = "norm", .points = points}}});
    EXPECT_THAT(svg, HasSubstr("<svg role=\"img\" aria-label=\"x\""));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf\"")));
  }
}

TEST(Chart, areas_stand_on_each_other) {
  const StackedChart chart{.label = "time",
                           .names = {"forward", "backward"},
                           .colours = {"forward", "backward"},
                           .columns = {.x = {1, 2}, .columns = {{1, 1}, {1, 3}}}};
  const std::string svg = draw(chart);
  EXPECT_THAT(svg, HasSubstr("data-y=\"0 4\""));
  EXPECT_THAT(svg, HasSubstr("M0.0,750.0L1000.0,750.0L1000.0,1000.0L0.0,1000.0Z"));
  EXPECT_THAT(svg, HasSubstr("M0.0,500.0L1000.0,0.0L1000.0,750.0L0.0,750.0Z"));
  const std::string one = draw(StackedChart{
      .label = "time", .names = {"forward"}, .colours = {"forward"}, .columns = {.x = {1}, .columns = {{1}}}});
  EXPECT_THAT(one, HasSubstr("M0.0,0.0L1000.0,0.0L1000.0,1000.0L0.0,1000.0Z"));
}

TEST(Chart, bars_are_their_parts) {
  const BarChart chart{.label = "memory",
                       .names = {"weights", "other"},
                       .colours = {"weights", "other"},
                       .rows = {{.label = "rank <0>", .values = {30, 10}},
                                {.label = "predicted", .values = {20, not_a_number}, .is_predicted = true}},
                       .unit = {"MB", 1}};
  const std::string svg = draw(chart);
  EXPECT_EQ(count(svg, "<rect"), 3u);
  EXPECT_THAT(svg, HasSubstr("x=\"75.00%\" y=\"4\" width=\"25.00%\""));
  EXPECT_THAT(svg, HasSubstr("rank &lt;0&gt;, weights: 30 MB (75.0 %)"));
  EXPECT_THAT(svg, HasSubstr("class=\"weights predicted\""));
  EXPECT_THAT(draw(BarChart{.label = "none"}), HasSubstr("<svg"));
}

TEST(ReportPage, is_one_file_and_escapes_every_text) {
  const std::string evil = "<script>alert(1)</script>\"'&";
  const ReportPage page{.title = evil,
                        .subtitle = evil,
                        .state = evil,
                        .cause = evil,
                        .tiles = {{.name = evil, .value = evil, .detail = evil}},
                        .facts = {{evil, evil}},
                        .cards = {{.id = "loss",
                                   .title = evil,
                                   .subtitle = evil,
                                   .legend = {{evil, "train"}},
                                   .views = {{"linear", draw(LineChart{.label = evil})}, {"logarithmic", "b"}},
                                   .note = evil}},
                        .gaps = {evil},
                        .footer = evil};
  const std::string html = to_html(page);
  EXPECT_EQ(count(html, "<script>"), 1u);  // our own
  EXPECT_EQ(count(html, "alert(1)"), count(html, "&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_EQ(count(html, "type=\"radio\""), 2u);
  for (const char* const outside : {"http://www", "https://", "src=", "href=", "@import", "url("})
    EXPECT_LE(count(html, outside), outside == std::string_view("http://www") ? 1u : 0u) << outside;  // the name of SVG
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
}

}  // namespace
