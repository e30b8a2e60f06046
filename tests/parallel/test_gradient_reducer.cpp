// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/message_delays.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

// One element, fewer than ranks, odd, longer than a bucket, and some that share one.
const std::vector<Index> odd_sizes{1, 2, 5000, 33, 700, 1, 1, 999};
constexpr Index small_bucket = 300 * 8;

template <class S>
class GradientReducerOf : public testing::Test {
 protected:
  void fill(const Tensor<S, 1>& gradients, Index shift) const {
    const auto host = Kokkos::create_mirror_view(gradients);
    for (Index i = 0; i < static_cast<Index>(host.extent(0)); ++i)
      host(i) = contribution<S>(world().rank(), i + shift);
    Kokkos::deep_copy(gradients, host);
  }
  std::vector<S> wanted(Index count, Index shift) const {
    std::vector<S> sums(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i)
      sums[static_cast<std::size_t>(i)] = rank_order_sum<S>(world().size(), i + shift);
    return sums;
  }
};
using StateTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(GradientReducerOf, StateTypes);

TYPED_TEST(GradientReducerOf, SumsInRankOrderForAnyOrderOfMarks) {
  const auto segments = segments_of(odd_sizes);
  const auto gradients = allocate<TypeParam>(Category::gradients, "test", total(segments));
  GradientReducer<TypeParam> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                     {.bucket_bytes = small_bucket});
  std::vector<int> order(segments.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::mt19937 random(static_cast<unsigned>(7 + world().rank()));  // another order on each rank
  for (int step = 0; step < 12; ++step) {
    this->fill(gradients, step);
    reducer.begin_step();
    for (std::size_t i = 0; i < order.size() - static_cast<std::size_t>(step % 3); ++i) {  // some are never marked
      reducer.mark_ready(order[i]);
      if (step % 2 == 0)
        reducer.progress();
    }
    reducer.wait();
    EXPECT_TRUE(same_bits(to_vector(gradients), this->wanted(total(segments), step))) << "step " << step;
    std::shuffle(order.begin(), order.end(), random);
  }
}

TYPED_TEST(GradientReducerOf, SameBitsWithDelaysAndAnyBuckets) {
  const RestoreSettings restore;
  const auto segments = segments_of(odd_sizes);
  const auto gradients = allocate<TypeParam>(Category::gradients, "test", total(segments));
  std::uint64_t seed = 0;
  for (const Index bucket_bytes : {Index{64}, Index{1000}, Index{20000}, Index{1} << 30})
    for (const int in_flight : {1, 4}) {
      GradientReducer<TypeParam> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                         {.bucket_bytes = bucket_bytes, .buckets_in_flight = in_flight});
      delay_messages(world(), bucket_bytes < 500 ? 50 : 1000, ++seed);
      this->fill(gradients, 0);
      reducer.begin_step();
      for (int s = static_cast<int>(segments.size()) - 1; s >= 0; --s)
        reducer.mark_ready(s);
      reducer.wait();
      EXPECT_TRUE(same_bits(to_vector(gradients), this->wanted(total(segments), 0))) << bucket_bytes << " bytes";
    }
}

TEST(GradientReducerPeers, StartsWhileTheRestIsStillComputed) {
  ASSERT_GT(world().size(), 1) << "nothing to send";
  const auto segments = segments_of({1000, 1000, 1000});
  const auto gradients = allocate<float>(Category::gradients, "test", total(segments));
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                 {.bucket_bytes = 4000});
  Kokkos::deep_copy(gradients, 1.0f);
  reducer.begin_step();
  reducer.mark_ready(2);
  EXPECT_GT(bytes_sent(reducer), 0u);
  // Without wait(), by progress() alone, the marked bucket is summed and the others are left alone.
  const Waiter since({});
  while (to_vector(gradients)[2000] != static_cast<float>(world().size()) && since.seconds() < 20)
    reducer.progress();
  EXPECT_EQ(to_vector(gradients)[2000], static_cast<float>(world().size()));
  EXPECT_EQ(to_vector(gradients)[1999], 1.0f);
  reducer.wait();
  EXPECT_EQ(to_vector(gradients)[0], static_cast<float>(world().size()));
}

// Until the other stage has sent its part of the tied gradients its work is waited for, not the network.
TEST(GradientReducerPeers, WaitingForTheOtherStageIsToldApart) {
  ASSERT_GT(world().size(), 1) << "nobody to wait for";
  constexpr double late = 0.3;
  const Communicator alone = world().split(world().rank(), 0, "alone");
  auto segments = segments_of({1000, 1000});
  segments[0].group = over_tied;
  const auto gradients = allocate<float>(Category::gradients, "test", total(segments));
  for (const bool tied : {true, false}) {
    GradientReducer<float> reducer(
        ExecSpace(),
        {.entries = {{over_dp, tied ? &alone : &world()}, {over_tp_and_dp, &alone}, {over_tied, &world()}}}, gradients,
        segments, {});
    barrier(world());
    if (world().rank() == 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(late));
    reducer.begin_step();
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    const Waiter since({});
    reducer.wait();
    const double waited = since.seconds();
    EXPECT_LE(reducer.bubble_seconds(), waited);
    if (!tied) {
      EXPECT_EQ(reducer.bubble_seconds(), 0) << "among replicas all of it is communication";
    } else if (world().rank() > 0) {
      EXPECT_GT(reducer.bubble_seconds(), late / 2);
    } else {
      EXPECT_LT(reducer.bubble_seconds(), late / 2) << "who comes last waits for nobody";
    }
    if (world().rank() > 0) {
      EXPECT_GT(waited, late / 2);
    }
  }
}

TEST(GradientReducer, BytesEqualTheFormula) {
  const auto segments = segments_of({Index{4096} * world().size()});
  const auto gradients = allocate<double>(Category::gradients, "test", total(segments));
  GradientReducer<double> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {});
  reducer.begin_step();
  reducer.wait();
  EXPECT_EQ(bytes_sent(reducer), static_cast<std::uint64_t>(2 * (world().size() - 1) * 4096 * 8));
}

TEST(GradientReducer, AllocatesNothingAfterTheConstructor) {
  const auto segments = segments_of(odd_sizes);
  const auto gradients = allocate<float>(Category::gradients, "test", total(segments));
  const auto without = MemoryLedger::instance().current()[Category::communication];
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                 {.bucket_bytes = small_bucket, .buckets_in_flight = 3});
  const auto before = MemoryLedger::instance().current();
  MemoryLedger::instance().reset_peak();
  for (int step = 0; step < 3; ++step) {
    reducer.begin_step();
    reducer.wait();
  }
  EXPECT_EQ(MemoryLedger::instance().peak().total(), before.total());
  if (world().size() > 1) {
    EXPECT_GT(before[Category::communication], without);
    // Three buckets in flight, each with the slices of the others, rounded up to cache lines.
    EXPECT_LE(before[Category::communication] - without,
              static_cast<std::size_t>(3 * (small_bucket + 64 * world().size()) + 4096));
  }
}

TEST(GradientReducer, OneRankHasNothingToDo) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  const auto segments = segments_of({10});
  const auto gradients = allocate<float>(Category::gradients, "test", 10);
  Kokkos::deep_copy(gradients, 3.0f);
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(alone), gradients, segments, {});
  reducer.begin_step();
  reducer.mark_ready(0);
  reducer.wait();
  EXPECT_EQ(to_vector(gradients)[9], 3.0f);
  EXPECT_EQ(bytes_sent(reducer), 0u);
}

TEST(GradientReducerPeers, MarkingTwiceIsADefect) {
  ASSERT_GT(world().size(), 1) << "marks are not kept";
  const auto segments = segments_of({100, 100});
  const auto gradients = allocate<float>(Category::gradients, "test", 200);
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {});
  reducer.begin_step();
  reducer.mark_ready(1);
  EXPECT_THROW(reducer.mark_ready(1), std::logic_error);
  EXPECT_THROW(reducer.mark_ready(2), std::logic_error);
  reducer.wait();
  barrier(world());
}

// A suite of its own, which runs last: messages that were given up would meet those of later communicators.
TEST(GradientReducerDeadlinePeers, NamesTheBucketAndTheRank) {
  ASSERT_GT(world().size(), 1) << "nobody to wait for";
  const RestoreSettings restore;
  const auto segments = segments_of({100, 100});
  const auto gradients = allocate<float>(Category::gradients, "test", 200);
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                 {.bucket_bytes = 400});
  world().set_deadline(0.3);
  if (world().rank() != 1) {
    try {
      reducer.wait();
      FAIL() << "rank 1 never reduced, and wait() returned";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::communication);
      const std::string text = error.what();
      EXPECT_NE(text.find("gradient bucket 0 of 2"), std::string::npos) << text;
      EXPECT_NE(text.find("nothing from rank 1"), std::string::npos) << text;
    }
  }
  *world().state()->context = restore.before;
  barrier(world());
}

}  // namespace
}  // namespace espalier
