// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "parallel/collectives/collectives.hpp"
#include "parallel/observe/timeline.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

TEST(Timeline, RecordsOnlyWhileSwitchedOn) {
  Timeline timeline;
  timeline.spent({.what = "before", .end = 1});
  timeline.switch_on();
  timeline.step_begins(7);
  timeline.spent({.what = "F1", .phase = Phase::forward, .begin = 0.5, .end = 1, .chunk = 1, .microbatch = 2});
  timeline.spent({.what = "nothing", .begin = 1, .end = 1});
  timeline.evaluation_begins();
  timeline.spent({.what = "of no step", .end = 1});
  timeline.evaluation_ends();
  timeline.switch_off();
  timeline.spent({.what = "after", .end = 1});
  const auto events = timeline.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "F1");
  EXPECT_STREQ(events[0].category, "forward");
  EXPECT_EQ(events[0].microbatch, 2);
  EXPECT_EQ(events[0].step, 7);
  EXPECT_TRUE(timeline.events().empty());
}

TEST(Timeline, TheReducerRecordsBucketsAndItsWait) {
  const RestoreSettings restore;
  const auto segments = segments_of({1000, 1000});
  const auto gradients = allocate<float>(Category::gradients, "test", 2000);
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                 {.bucket_bytes = 4000});
  world().timeline().switch_on();
  const double begin = world().clock().now();
  reducer.begin_step();
  reducer.mark_ready(1);
  reducer.wait();
  const auto events = world().timeline().take();
  if (world().size() == 1) {
    EXPECT_TRUE(events.empty());
    return;
  }
  ASSERT_EQ(events.size(), 3u);
  for (const TimelineEvent& event : events) {
    EXPECT_STREQ(event.category, "data_comm");
    EXPECT_GE(event.begin, begin);
    EXPECT_LE(event.begin, event.end);
    EXPECT_LE(event.end, world().clock().now());
  }
  // Two buckets in flight end in any order.
  const std::set<std::string> buckets = {events[0].name, events[1].name};
  EXPECT_EQ(buckets,
            (std::set<std::string>{"reduce bucket 0 of world gradients", "reduce bucket 1 of world gradients"}));
  EXPECT_EQ(events[0].track, communication_track);
  EXPECT_EQ(events[2].name, "wait for gradients");
  EXPECT_EQ(events[2].track, operations_track);
}

TEST(JobClock, StartsWithTheJobAndRunsAlikeOnAllRanks) {
  const double before = world().clock().now();
  EXPECT_GT(before, 0);
  EXPECT_LT(before, 3600) << "seconds since the start of the job, not of the machine";
  // After a barrier nobody's clock may be behind what anybody's was before it.
  const double latest = all_reduce(world(), world().clock().now(), ReduceOp::max);
  EXPECT_GE(world().clock().now(), latest - 1e-3);
  synchronize_clocks(world());
  EXPECT_LT(world().clock().now(), before + 60);
  barrier(world());
}

TEST(JobClock, TheShortestRoundTripDecides) {
  // The other clock is 100 ahead; the second trip is the quick one, the others were held up on one way.
  const std::array<RoundTrip, 3> trips{{{1, 104, 5}, {10, 110.5, 11}, {20, 120.1, 28}}};
  EXPECT_DOUBLE_EQ(clock_difference(trips.data(), 3), 100);
}

}  // namespace
}  // namespace espalier
