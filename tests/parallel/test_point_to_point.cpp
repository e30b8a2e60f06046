// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/point_to_point.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

// (world size ranks in a ring; with one rank there is no peer)
TEST(PointToPoint, RingOfTensors) {
  ASSERT_GT(world().size(), 1) << "no peer";
  for (const Index count : {Index{1}, Index{7}, Index{100003}}) {
    const auto out = make_tensor(contributions<float>(world().rank(), count));
    const auto in = make_tensor(std::vector<float>(static_cast<std::size_t>(count)));
    Request receive = irecv(ExecSpace(), world(), in, previous_rank(), tags::activations);
    Request send = isend(ExecSpace(), world(), out, next_rank(), tags::activations);
    receive.wait();
    send.wait();
    EXPECT_TRUE(same_bits(to_vector(in), contributions<float>(previous_rank(), count)));
  }
}

TEST(PointToPoint, TagsKeepMessagesApartAndOneTagKeepsTheirOrder) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const auto value = [](double v) { return make_tensor(std::vector<double>{v}); };
  const auto a = value(1), b = value(2), c = value(3);
  std::vector<Request> sends;
  sends.push_back(isend(ExecSpace(), world(), a, next_rank(), tags::activations));
  sends.push_back(isend(ExecSpace(), world(), b, next_rank(), tags::gradients));
  sends.push_back(isend(ExecSpace(), world(), c, next_rank(), tags::activations));
  const auto first = value(0), second = value(0), other = value(0);
  irecv(ExecSpace(), world(), other, previous_rank(), tags::gradients).wait();
  irecv(ExecSpace(), world(), first, previous_rank(), tags::activations).wait();
  irecv(ExecSpace(), world(), second, previous_rank(), tags::activations).wait();
  EXPECT_EQ(to_vector(first)[0], 1);
  EXPECT_EQ(to_vector(other)[0], 2);
  EXPECT_EQ(to_vector(second)[0], 3);
  for (Request& send : sends)
    send.wait();
}

TEST(PointToPoint, RequestKeepsTheBufferAlive) {
  ASSERT_GT(world().size(), 1) << "no peer";
  auto out = make_tensor(contributions<double>(world().rank(), 50000));
  const auto in = make_tensor(std::vector<double>(50000));
  Request send = isend(ExecSpace(), world(), out, next_rank());
  out = {};  // the request has the last reference
  const auto overwriting = make_tensor(std::vector<double>(50000, -1.0));
  irecv(ExecSpace(), world(), in, previous_rank()).wait();
  send.wait();
  EXPECT_TRUE(same_bits(to_vector(in), contributions<double>(previous_rank(), 50000)));
}

TEST(PointToPoint, SomethingElseAdvancesWhileARankWaits) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const auto in = make_tensor(std::vector<double>(1));
  Request receive = irecv(ExecSpace(), world(), in, previous_rank(), tags::data);
  bool sent = false;
  const auto send_once = [&] {
    if (!std::exchange(sent, true))
      isend(ExecSpace(), world(), make_tensor(std::vector<double>{static_cast<double>(world().rank())}), next_rank())
          .wait();
  };
  receive.wait(send_once);  // the first to wait has nothing to get, unless it sends
  send_once();
  EXPECT_EQ(to_vector(in)[0], previous_rank());
}

TEST(PointToPoint, AnotherLengthThanExpectedIsAnError) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const Communicator own = world().duplicate("lengths");
  for (const Index sent : {Index{3}, Index{5}}) {
    const auto out = make_tensor(std::vector<float>(static_cast<std::size_t>(sent)));
    const auto in = make_tensor(std::vector<float>(4));
    Request send = isend(ExecSpace(), own, out, next_rank());
    try {
      irecv(ExecSpace(), own, in, previous_rank()).wait();
      FAIL() << sent << " elements came for 4 and nothing was said";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::communication);
      EXPECT_NE(std::string(error.what()).find("16 bytes"), std::string::npos) << error.what();
    }
    send.wait();
  }
}

TEST(PointToPoint, LongMessagesGoInPieces) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const CommunicationContext before = world().context();
  world().set_max_message_bytes(13);
  const auto messages_before = world().traffic().messages;
  const auto out = make_tensor(contributions<float>(world().rank(), 10));
  const auto in = make_tensor(std::vector<float>(10));
  Request send = isend(ExecSpace(), world(), out, next_rank());
  irecv(ExecSpace(), world(), in, previous_rank()).wait();
  send.wait();
  *world().state()->context = before;
  EXPECT_EQ(world().traffic().messages - messages_before, 4u);  // 13 + 13 + 13 + 1
  EXPECT_TRUE(same_bits(to_vector(in), contributions<float>(previous_rank(), 10)));
}

TEST(PointToPoint, DeadlineNamesThePeer) {
  ASSERT_GT(world().size(), 1) << "no peer";
  const CommunicationContext before = world().context();
  const Communicator own = world().duplicate("silent");
  const auto in = make_tensor(std::vector<float>(4));
  world().set_deadline(0.1);
  for (const auto& [tag, what] : {std::pair(tags::activations, "activations"), {tags::ready, "readiness"}}) {
    try {
      irecv(ExecSpace(), own, in, previous_rank(), tag).wait();
      FAIL() << "nothing was sent, and the receive returned";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(fmt::format("receive of {} with rank {} of silent", what, previous_rank())),
                std::string::npos)
          << text;
    }
  }
  *world().state()->context = before;
  barrier(world());
}

}  // namespace
}  // namespace espalier
