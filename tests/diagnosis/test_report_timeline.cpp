// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/report_data.hpp"
#include "io/records/trace_file.hpp"
#include "tests/diagnosis/report_run.hpp"
#include "tests/io/support.hpp"

namespace {

using namespace espalier;
using test::run_of;
using test::TemporaryDirectory;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(Timeline, has_the_last_step_that_all_ranks_traced) {
  const TemporaryDirectory directory;
  RecordedRun run = run_of(10, 2);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<TimelineEvent> events;
    for (const Index step : {4, 5, 6})
      if (rank == 0 || step < 6)
        events.push_back({.name = fmt::format("F{}", step),
                          .category = "forward",
                          .microbatch = 0,
                          .begin = static_cast<double>(step),
                          .end = static_cast<double>(step) + 0.5,
                          .step = step});
    write_trace(directory.path(), rank, "rank", events);
    run.traces.push_back(directory / fmt::format("rank-{:05}.json", rank));
  }
  const Json timeline = report_data(run)["timeline"];
  EXPECT_EQ(timeline["step"], 5);
  EXPECT_EQ(timeline["rows"][1]["blocks"],
            Json::array({{{"kind", "forward"}, {"begin", 0}, {"end", 0.5}, {"name", "F5"}, {"microbatch", 0}}}));
  run.traces[0].clear();  // it left none: the others are drawn
  EXPECT_EQ(report_data(run)["timeline"]["rows"].size(), 1u);
  EXPECT_EQ(report_data(run)["timeline"]["num_ranks"], 2);
  std::filesystem::remove(run.traces[1]);
  const Json data = report_data(run);
  EXPECT_TRUE(data["timeline"].is_null());
  EXPECT_THAT(data["gaps"].dump(), HasSubstr("the timeline: "));
}

Json timeline_of(const std::vector<std::vector<TimelineEvent>>& ranks) {
  const TemporaryDirectory directory;
  RecordedRun run = run_of(3, static_cast<int>(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    write_trace(directory.path(), static_cast<int>(rank), "rank", ranks[rank]);
    run.traces.push_back(directory / fmt::format("rank-{:05}.json", rank));
  }
  return timeline_data(run);
}

std::vector<std::string> kinds_of(const Json& blocks) {
  std::vector<std::string> kinds;
  for (const Json& block : blocks)
    kinds.push_back(block["kind"]);
  return kinds;
}

TEST(Timeline, blocks_lie_where_their_time_is) {
  const Json rows = timeline_of(
      {{{.name = "F0", .category = "forward", .chunk = 0, .microbatch = 0, .begin = 10, .end = 10.5},
        {.name = "W0", .category = "backward", .chunk = 0, .microbatch = 0, .begin = 10.5, .end = 11}},
       {{.name = "B3", .category = "backward", .chunk = 1, .microbatch = 3, .begin = 11, .end = 14},
        {.name = "dp", .category = "data_comm", .begin = 12, .end = 14, .track = communication_track}}})["rows"];
  EXPECT_THAT(kinds_of(rows[0]["blocks"]), testing::ElementsAre("forward", "weight"));
  EXPECT_EQ(rows[0]["blocks"][1]["begin"], 0.5);
  EXPECT_THAT(kinds_of(rows[1]["blocks"]), testing::ElementsAre("backward odd", "data_comm"));
  EXPECT_EQ(rows[1]["blocks"][0]["begin"], 1);
  EXPECT_EQ(rows[1]["blocks"][0]["end"], 4);
  EXPECT_EQ(rows[1]["blocks"][0]["microbatch"], 3);
  EXPECT_FALSE(rows[1]["blocks"][0].contains("background"));
  EXPECT_EQ(rows[1]["blocks"][1]["background"], true);
}

TEST(Timeline, what_contains_lies_below_what_it_contains) {
  const Json rows = timeline_of({{{.name = "inner", .category = "tensor_comm", .begin = 0.2, .end = 0.6},
                                  {.name = "outer", .category = "forward", .begin = 0, .end = 1},
                                  {.name = "idle", .category = "bubble", .begin = 0.1, .end = 2}}})["rows"];
  EXPECT_THAT(kinds_of(rows[0]["blocks"]), testing::ElementsAre("bubble", "forward", "tensor_comm"));
}

// The page has no list of its own.
TEST(Timeline, lists_its_kinds_in_the_order_of_drawing) {
  const Json kinds = timeline_of({{{.name = "F0", .category = "forward", .begin = 0, .end = 1},
                                   {.name = "F1", .category = "forward", .chunk = 1, .begin = 1, .end = 2},
                                   {.name = "W0", .category = "backward", .begin = 2, .end = 3},
                                   {.name = "tp", .category = "tensor_comm", .begin = 3, .end = 4},
                                   {.name = "idle", .category = "bubble", .begin = 4, .end = 5},
                                   {.name = "x", .category = "unknown", .begin = 5, .end = 6}}})["kinds"];
  EXPECT_THAT(kinds_of(kinds), testing::ElementsAre("bubble", "forward", "forward odd", "weight", "tensor_comm"));
  EXPECT_EQ(kinds[1],
            Json({{"kind", "forward"}, {"text", "forward, even chunks"}, {"colour", "blue"}, {"computes", true}}));
  EXPECT_EQ(kinds[2]["colour"], "deep-blue");
  EXPECT_EQ(kinds[4]["computes"], false);
}

// 64 ranks of 1000 operations: fewer blocks, and yet no time is lost.
TEST(Timeline, many_blocks_become_fewer) {
  std::vector<std::vector<TimelineEvent>> ranks(64);
  for (auto& events : ranks)
    for (int i = 0; i < 1000; ++i)
      events.push_back({.name = "F", .category = "forward", .microbatch = i, .begin = i * 1e-3, .end = (i + 1) * 1e-3});
  const Json timeline = timeline_of(ranks);
  std::size_t num_blocks = 0;
  for (const Json& row : timeline["rows"]) {
    num_blocks += row["blocks"].size();
    double seconds = 0;
    for (const Json& block : row["blocks"])
      seconds += block["end"].get<double>() - block["begin"].get<double>();
    EXPECT_NEAR(seconds, 1, 1e-3);
    EXPECT_GT(row["blocks"][0]["events"].get<int>(), 1);
  }
  EXPECT_LE(num_blocks, 3000u);
  EXPECT_GE(num_blocks, 64u);
  EXPECT_LT(timeline.dump().size(), 500000u);
}

TEST(Timeline, what_takes_no_time_has_no_block) {
  const Json rows = timeline_of({{{.name = "x", .category = "forward", .begin = 5, .end = 5}}})["rows"];
  EXPECT_TRUE(rows[0]["blocks"].empty());
}

}  // namespace
