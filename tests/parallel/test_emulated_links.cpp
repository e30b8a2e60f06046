// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/emulated_links.hpp"
#include "parallel/collectives/point_to_point.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

/// Emulates links as long as it lives; all ranks together.
class Emulate {
 public:
  explicit Emulate(const EmulatedLinks& links) {
    barrier(world());
    emulate_links(world(), links);
  }
  ~Emulate() { emulate_links(world(), {}); }
};

TEST(LinkQueue, MessagesOfOneTierGoOneAfterAnother) {
  const EmulatedLinks links{.within_node = {.latency = 1, .bytes_per_second = 10},
                            .between_nodes = {.latency = 5, .bytes_per_second = 1},
                            .ranks_per_node = 4,
                            .message_scale = 2};
  LinkQueue queue;
  EXPECT_DOUBLE_EQ(queue.send(links, true, 10, 100), 103);   // 20 priced bytes at 10 a second, and 1
  EXPECT_DOUBLE_EQ(queue.send(links, true, 10, 100), 105);   // behind the first
  EXPECT_DOUBLE_EQ(queue.send(links, false, 10, 100), 125);  // on a link of its own
  EXPECT_DOUBLE_EQ(queue.send(links, true, 10, 200), 203);   // the link is free again
  EXPECT_TRUE(links.same_node(4, 7));
  EXPECT_FALSE(links.same_node(3, 4));
  EXPECT_TRUE((EmulatedLinks{}).same_node(0, 1000));
  EXPECT_FALSE((EmulatedLinks{}).on());
}

TEST(EmulatedLinksPeers, AMessageTakesLatencyAndBandwidth) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const auto out = make_tensor(contributions<float>(world().rank(), 1000));
  const auto in = make_tensor(std::vector<float>(1000));
  double seconds = 0;
  {
    // 4000 bytes x 10 at 400 kB/s: 0.1 s, and 0.05 s of latency
    const Emulate emulate(
        {.within_node = {.latency = 0.05, .bytes_per_second = 4e5}, .between_nodes = {}, .message_scale = 10});
    const auto traffic_before = world().traffic();
    const double begin = world().clock().now();
    Request receive = irecv(ExecSpace(), world(), in, previous_rank(), tags::activations);
    Request send = isend(ExecSpace(), world(), out, next_rank(), tags::activations);
    receive.wait();
    seconds = world().clock().now() - begin;
    send.wait();
    EXPECT_GE(receive.sent_at(), begin - 10);
    EXPECT_GE(world().clock().now() - receive.sent_at(), 0.15);
    EXPECT_EQ(world().traffic().bytes - traffic_before.bytes, 4000u) << "stamps do not count";
    EXPECT_EQ(world().traffic().messages - traffic_before.messages, 1u);
  }
  EXPECT_LT(seconds, 10);
  EXPECT_TRUE(same_bits(to_vector(in), contributions<float>(previous_rank(), 1000)));
  barrier(world());
}

TEST(EmulatedLinksOfFour, SlowLinksBetweenNodesOnly) {
  ASSERT_EQ(world().size(), 4) << "two nodes of two";
  for (const bool crossing : {false, true}) {
    const int peer = crossing ? (world().rank() + 2) % 4 : world().rank() ^ 1;
    const auto out = make_tensor(std::vector<float>(4, 1.0f));
    const auto in = make_tensor(std::vector<float>(4));
    const Emulate emulate({.within_node = {}, .between_nodes = {.latency = 0.3}, .ranks_per_node = 2});
    Request receive = irecv(ExecSpace(), world(), in, peer);
    isend(ExecSpace(), world(), out, peer).wait();
    receive.wait();
    const double seconds = world().clock().now() - receive.sent_at();
    EXPECT_EQ(seconds >= 0.3, crossing);
    barrier(world());
  }
}

// Each axis has a communicator of its own: of tiny tensors some stand for larger ones than others.
TEST(EmulatedLinksPeers, ACommunicatorHasAMessageScaleOfItsOwn) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const Communicator scaled = world().duplicate("scaled");
  const auto out = make_tensor(std::vector<float>(1000, 1.0f));
  const auto in = make_tensor(std::vector<float>(1000));
  const auto transit = [&](const Communicator& communicator) {
    barrier(world());
    Request receive = irecv(ExecSpace(), communicator, in, previous_rank());
    isend(ExecSpace(), communicator, out, next_rank()).wait();
    receive.wait();
    return world().clock().now() - receive.sent_at();
  };
  // 4000 bytes at 400 kB/s: 0.01 s each, and 0.3 s where a byte counts as 30. Stamps and barriers are free of that.
  const Emulate emulate({.within_node = {.bytes_per_second = 4e5}, .between_nodes = {}, .scales = {{"scaled", 30}}});
  EXPECT_GE(transit(scaled), 0.3);
  EXPECT_LT(transit(world()), 0.2);
  EXPECT_GE(transit(scaled.duplicate("scaled gradients")), 0.3) << "reductions go over copies";
  barrier(world());
}

// One way, one pair.
TEST(EmulatedLinksPeers, ADelayedLink) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const Emulate emulate({.within_node = {}, .between_nodes = {}, .delayed = {.from = 0, .to = 1, .seconds = 0.2}});
  const auto out = make_tensor(std::vector<float>(4, 1.0f));
  const auto in = make_tensor(std::vector<float>(4));
  Request receive = irecv(ExecSpace(), world(), in, previous_rank());
  Request send = isend(ExecSpace(), world(), out, next_rank());
  receive.wait();
  const double seconds = world().clock().now() - receive.sent_at();
  send.wait();
  if (world().rank() == 1) {
    EXPECT_GE(seconds, 0.2);
  } else {
    EXPECT_LT(seconds, 0.2);
  }
  barrier(world());
}

TEST(EmulatedLinks, CollectivesAndReductionsGiveTheSameBits) {
  const auto segments = segments_of({1000, 3000, 7});
  const auto gradients = make_tensor(contributions<float>(world().rank(), total(segments)));
  const auto data = make_tensor(contributions<float>(world().rank(), 3000));
  GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                 {.bucket_bytes = 4000});
  const auto traffic_before = world().traffic().bytes;
  {
    const Emulate emulate({.within_node = {.latency = 2e-3, .bytes_per_second = 1e7}, .between_nodes = {}});
    const auto barrier_bytes = world().traffic().bytes - traffic_before;
    all_reduce(ExecSpace(), world(), data);
    EXPECT_EQ(world().traffic().bytes - traffic_before - barrier_bytes,
              world().size() == 1 ? 0u : static_cast<std::uint64_t>(2 * 12000 * (world().size() - 1) / world().size()));
    reducer.begin_step();
    reducer.wait();
    const auto traffic = reduction_traffic(reducer.plan(), ReductionCommunicators::all(world()).ranks(), {}, 4, 4);
    EXPECT_EQ(bytes_sent(reducer), traffic.at(GroupKey{}).reduce_bytes);
    barrier(world());
  }
  EXPECT_TRUE(same_bits(to_vector(data), rank_order_sums<float>(world().size(), 3000)));
  EXPECT_TRUE(same_bits(to_vector(gradients), rank_order_sums<float>(world().size(), total(segments))));
}

// What a late sender costs its receiver (bubble) is told apart from what the network costs.
TEST(EmulatedLinksPeers, AStampSaysWhenTheSenderWasReady) {
  ASSERT_GT(world().size(), 1) << "no peer";
  barrier(world());
  const double begin = world().clock().now();
  const auto out = make_tensor(std::vector<double>{1});
  const auto in = make_tensor(std::vector<double>{0});
  Request receive = irecv(ExecSpace(), world(), in, previous_rank(), tags::gradients);
  EXPECT_EQ(receive.sent_at(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  isend(ExecSpace(), world(), out, next_rank(), tags::gradients).wait();
  receive.wait();
  EXPECT_GE(receive.sent_at() - begin, 0.15);
  EXPECT_LE(receive.sent_at(), world().clock().now());
}

}  // namespace
}  // namespace espalier
