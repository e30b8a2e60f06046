// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/point_to_point.hpp"
#include "parallel/observe/position.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

Position busy(int rank, std::int64_t step, const char* operation) {
  Position position;
  position.rank = rank;
  position.step = step;
  position.microbatch = 2;
  position.pid = 100 + rank;
  position.since = 1000;
  std::strcpy(position.host.data(), "node");
  std::strcpy(position.operation.data(), operation);
  return position;
}

Position waiting(int rank, const std::vector<int>& peers) {
  Position position = busy(rank, 7, "forward");
  position.waiting = 1;
  position.since = 998;
  position.sequence = 41;
  std::strcpy(position.waits_for.data(), "the receive of activations");
  std::strcpy(position.communicator.data(), "pp");
  position.num_peers = static_cast<int>(peers.size());
  std::copy(peers.begin(), peers.end(), position.peers.begin());
  return position;
}

std::string last_line(const std::vector<Position>& positions) {
  const std::string report = positions_report(positions);
  const auto end = report.find_last_not_of('\n');
  return report.substr(report.rfind('\n', end) + 1, end - report.rfind('\n', end));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Position, ReportSaysWhoIsWhere) {
  Position done = busy(2, 9, "");
  done.finished = 1;
  const std::string report = positions_report(std::vector<Position>{done, waiting(1, {0}), busy(0, 7, "backward")});
  EXPECT_EQ(
      report,
      "rank 0 (node, process 100): step 7, backward, micro-batch 2, busy for 0.0 s\n"
      "rank 1 (node, process 101): step 7, forward, micro-batch 2, waits for the receive of activations from rank "
      "0 on communicator pp (after 41 messages) for 2.0 s\n"
      "rank 2 (node, process 102): step 9, micro-batch 2, exited\n"
      "likely culprit: rank 0 (node), which waits for nobody: step 7, backward, micro-batch 2, busy or ended; "
      "1 of 3 ranks wait for it, directly or along a chain\n");
}

TEST(Position, TheEndOfTheChainIsTheCulprit) {
  // 3 -> 2 -> 1 -> 0, and 4 -> {3, 1}; rank 5 is busy too, but nobody needs it.
  const std::string line = last_line({busy(0, 3, "backward"), waiting(1, {0}), waiting(2, {1}), waiting(3, {2}),
                                      waiting(4, {3, 1}), busy(5, 3, "forward")});
  EXPECT_TRUE(contains(line, "likely culprit: rank 0 (node)")) << line;
  EXPECT_TRUE(contains(line, "4 of 6 ranks wait for it")) << line;
}

TEST(Position, TheRankWithMostWaitersIsTheCulprit) {
  const std::string line =
      last_line({busy(0, 3, "a"), busy(1, 3, "b"), waiting(2, {0, 1}), waiting(3, {1}), waiting(4, {2})});
  EXPECT_TRUE(contains(line, "likely culprit: rank 1 (node)")) << line;
  EXPECT_FALSE(contains(line, "rank 0")) << line;
}

// A collective names nobody: missing is who has begun fewer of them on that communicator, and nobody else.
TEST(Position, WhoHasNotBegunACollectiveIsTheCulprit) {
  const auto in_collective = [](Position position, std::uint32_t begun) {
    position.collectives[3] = {77, begun};
    position.collectives[0] = {78, 1};
    if (position.waiting != 0)
      position.waited_for = {77, begun};
    return position;
  };
  std::vector<Position> positions = {in_collective(waiting(0, {}), 5), in_collective(busy(1, 7, "forward"), 4),
                                     in_collective(waiting(2, {}), 5), busy(3, 7, "backward"),
                                     in_collective(busy(4, 7, "forward"), 5)};
  const std::string line = last_line(positions);
  EXPECT_TRUE(contains(line, "likely culprit: rank 1 (node)")) << line;
  EXPECT_TRUE(contains(line, "2 of 5 ranks wait for it")) << line;
  EXPECT_TRUE(contains(positions_report(positions), "waits for the receive of activations from rank 1 on"));
  positions[1] = in_collective(busy(1, 7, "forward"), 5);
  EXPECT_EQ(last_line(positions), "no culprit: no rank waits for another");
}

TEST(Position, CountsCollectivesByCommunicator) {
  PositionWriter writer;
  const Position& now = writer.current();
  writer.collective_begins(9, 0);
  writer.collective_begins(8, 3);
  writer.collective_begins(9, 1);
  EXPECT_EQ(now.collectives[0].begun, 1U);
  EXPECT_EQ(now.collectives[1].begun, 3U);
  writer.communicator_ends(9);
  EXPECT_EQ(now.collectives[0].communicator, 0U);
  writer.wait_begins("all_gather", "dp", 4, {});
  writer.collective_waits(8, 3);
  EXPECT_EQ(now.waited_for.communicator, 8U);
  writer.wait_begins("a receive", "pp", 4, {});
  EXPECT_EQ(now.waited_for.communicator, 0U);
}

// A stopped rank goes on saying that it waits, but no longer that it lives.
TEST(Position, ASilentRankIsTheCulpritThoughItSaysThatItWaits) {
  std::vector<Position> positions = {waiting(0, {2}), waiting(1, {0, 2}), waiting(2, {0}), waiting(3, {0})};
  for (Position& position : positions)
    position.alive = 1000.5;
  EXPECT_TRUE(contains(last_line(positions), "ranks 0, 2 wait for each other, a deadlock"));
  positions[2].alive = 996;
  const std::string line = last_line(positions);
  EXPECT_TRUE(contains(line, "likely culprit: rank 2 (node), which gave no sign of life for 4.5 s")) << line;
  EXPECT_TRUE(contains(line, "3 of 4 ranks wait for it")) << line;
}

// Ranks that exchange a message wait for each other too, for a moment: killed there, they are no deadlock.
TEST(Position, ADeadlockLasts) {
  std::vector<Position> positions = {waiting(0, {1}), waiting(1, {0})};  // since 998
  positions[0].alive = positions[1].alive = 998.4;
  EXPECT_EQ(last_line(positions),
            "no culprit: ranks 0, 1 were exchanging messages, for 0.4 s: likely ended from outside, all at about the "
            "same time");
  positions[0].since = 990;
  EXPECT_FALSE(contains(last_line(positions), "deadlock")) << "rank 1 has only come to the wait";
  positions[1].alive = 1000;
  positions[0].alive = 999.9;
  EXPECT_EQ(last_line(positions), "no culprit: ranks 0, 1 wait for each other, a deadlock");
  for (const auto& late : {std::vector{waiting(2, {0})}, {waiting(2, {3}), waiting(3, {2})}}) {
    std::vector<Position> more = positions;
    more.insert(more.end(), late.begin(), late.end());
    for (std::size_t i = 2; i < more.size(); ++i)
      more[i].since = more[i].alive = 999.9;
    EXPECT_EQ(last_line(more), "no culprit: ranks 0, 1 wait for each other, a deadlock") << "others came just now";
  }
}

TEST(Position, OtherEnds) {
  EXPECT_TRUE(contains(last_line({waiting(0, {3})}), "rank 3, which left no progress"));
  Position done = busy(1, 9, "");
  done.finished = 1;
  EXPECT_TRUE(contains(last_line({waiting(0, {1}), done}), "rank 1 (node), which exited before the others"));
  EXPECT_EQ(last_line({busy(0, 9, "forward"), done}), "likely culprit: rank 0 was killed or crashed");
  EXPECT_EQ(last_line({done}), "all ranks exited cleanly");
  EXPECT_EQ(last_line({busy(0, 9, "forward")}), "no culprit: no rank waits for another");
}

TEST(Position, LongTextsAreCut) {
  PositionWriter writer;
  writer.operation_begins(3, std::string(1000, 'x'), 1, 2);
  const std::vector<int> peers{0, 1, 2, 3, 4, 5, 6, 7};
  writer.wait_begins(std::string(1000, 'y'), std::string(1000, 'z'), 5, peers);
  EXPECT_EQ(std::string(writer.current().operation.data()).size(), writer.current().operation.size() - 1);
  EXPECT_EQ(std::string(writer.current().waits_for.data()).size(), writer.current().waits_for.size() - 1);
  EXPECT_EQ(writer.current().num_peers, Position::max_peers);
  EXPECT_EQ(writer.current().peers[7], 7);
}

TEST(Position, GoesOnInAnotherPlace) {
  PositionWriter writer;
  writer.set_rank(3, 8);
  writer.step_begins(12);
  Position place;
  writer.keep_in(&place);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.step, 12);
  writer.operation_begins(0, "forward", 0, 4);
  EXPECT_EQ(place.microbatch, 4);
  writer.keep_in(nullptr);
  writer.step_begins(13);
  EXPECT_EQ(place.step, 12);
  EXPECT_EQ(writer.current().step, 13);
  EXPECT_EQ(writer.current().microbatch, 4);
  writer.sign_off();
  EXPECT_EQ(writer.current().finished, 1);
}

// What a stream of the device waits for is told while the host does not wait itself, and also after that.
TEST(Position, StreamsWaitBehindTheHost) {
  PositionWriter writer;
  const Position& now = writer.current();
  const std::vector<int> peers{2};
  writer.enter_stream_wait("a sum", "tp", 4, peers, 1.5);
  EXPECT_NEAR(now.since, now.alive - 1.5, 0.5);
  writer.operation_begins(7, "F1", 0, 1);
  EXPECT_EQ(now.waiting, 1);
  EXPECT_EQ(now.operation_index, 7);
  EXPECT_STREQ(now.waits_for.data(), "a sum");
  writer.wait_begins("a flag", "world", 9, std::vector<int>{0, 1});
  EXPECT_STREQ(now.waits_for.data(), "a flag");
  writer.wait_ends();
  EXPECT_EQ(now.waiting, 1);
  EXPECT_STREQ(now.waits_for.data(), "a sum");
  EXPECT_STREQ(now.communicator.data(), "tp");
  EXPECT_EQ(now.sequence, 4U);
  ASSERT_EQ(now.num_peers, 1);
  EXPECT_EQ(now.peers[0], 2);
  writer.wait_begins("a flag", "world", 9, peers);
  writer.leave_stream_wait();
  EXPECT_STREQ(now.waits_for.data(), "a flag");
  writer.wait_ends();
  EXPECT_EQ(now.waiting, 0);
  const double alive = now.alive;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  writer.show_life();
  EXPECT_GT(now.alive, alive);
}

// A reader never sees one half of an old and one half of a new position.
TEST(Position, CanBeReadAtAnyTime) {
  Position shared;
  PositionWriter writer;
  writer.keep_in(&shared);
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    for (int i = 0; !stop; ++i) {
      writer.operation_begins(i, std::to_string(i), i, i);
      if (i % 64 == 0)  // a rank computes between two writes
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  while (read_position(shared).operation_index < 0)
    std::this_thread::yield();
  int torn = 0;
  for (int i = 0; i < 2000; ++i) {
    const Position position = read_position(shared);
    torn += position.operation_index != position.microbatch ||
            std::to_string(position.microbatch) != position.operation.data();
  }
  stop = true;
  thread.join();
  EXPECT_EQ(torn, 0);
}

TEST(PositionPeers, WaitsAreWrittenDown) {
  ASSERT_GT(world().size(), 1) << "nobody to wait for";
  const RestoreSettings restore;
  Position place;
  world().keep_position_in(&place);
  const int size = world().size();
  const int previous = (world().rank() + size - 1) % size;
  const Communicator own = world().duplicate("silent");
  const auto in = make_tensor(std::vector<float>(4));
  world().set_deadline(0.1);
  EXPECT_THROW(recv(ExecSpace(), own, in, previous, tags::activations), Error);
  EXPECT_EQ(place.rank, world().rank());
  EXPECT_EQ(place.world_size, size);
  EXPECT_EQ(place.waiting, 1) << "after an error the position tells what was waited for";
  EXPECT_EQ(place.num_peers, 1);
  EXPECT_EQ(place.peers[0], previous);
  EXPECT_STREQ(place.communicator.data(), "silent");
  EXPECT_TRUE(contains(place.waits_for.data(), "receive of activations")) << place.waits_for.data();
  world().set_deadline(60);
  world().keep_position_in(nullptr);
  world().position().wait_ends();
  barrier(world());
  EXPECT_EQ(world().position().current().waiting, 0);
}

}  // namespace
}  // namespace espalier
