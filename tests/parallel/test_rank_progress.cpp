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
#include "parallel/observe/rank_progress.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

RankProgress busy(int rank, std::int64_t step, const char* operation) {
  RankProgress progress;
  progress.rank = rank;
  progress.step = step;
  progress.microbatch = 2;
  progress.pid = 100 + rank;
  progress.since = 1000;
  std::strcpy(progress.host.data(), "node");
  std::strcpy(progress.operation.data(), operation);
  return progress;
}

RankProgress waiting(int rank, const std::vector<int>& peers) {
  RankProgress progress = busy(rank, 7, "forward");
  progress.waiting = 1;
  progress.since = 998;
  progress.sequence = 41;
  std::strcpy(progress.waits_for.data(), "the receive of activations");
  std::strcpy(progress.communicator.data(), "pp");
  progress.num_peers = static_cast<int>(peers.size());
  std::copy(peers.begin(), peers.end(), progress.peers.begin());
  return progress;
}

std::string last_line(const std::vector<RankProgress>& ranks) {
  const std::string report = progress_report(ranks);
  const auto end = report.find_last_not_of('\n');
  return report.substr(report.rfind('\n', end) + 1, end - report.rfind('\n', end));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(RankProgress, ReportSaysWhoIsWhere) {
  RankProgress done = busy(2, 9, "");
  done.finished = 1;
  const std::string report = progress_report(std::vector<RankProgress>{done, waiting(1, {0}), busy(0, 7, "backward")});
  EXPECT_EQ(
      report,
      "rank 0 (node, process 100): step 7, backward, micro-batch 2, busy for 0.0 s\n"
      "rank 1 (node, process 101): step 7, forward, micro-batch 2, waits for the receive of activations from rank "
      "0 on communicator pp (after 41 messages) for 2.0 s\n"
      "rank 2 (node, process 102): step 9, micro-batch 2, exited\n"
      "likely culprit: rank 0 (node), which waits for no other rank: step 7, backward, micro-batch 2, busy or ended; "
      "1 of 3 ranks wait for it, directly or along a chain\n");
  EXPECT_TRUE(names_culprit("failed\n" + report));
  EXPECT_FALSE(names_culprit("failed\n"));
}

TEST(RankProgress, TheEndOfTheChainIsTheCulprit) {
  // 3 -> 2 -> 1 -> 0, and 4 -> {3, 1}; rank 5 is busy too, but nobody needs it.
  const std::string line = last_line({busy(0, 3, "backward"), waiting(1, {0}), waiting(2, {1}), waiting(3, {2}),
                                      waiting(4, {3, 1}), busy(5, 3, "forward")});
  EXPECT_TRUE(contains(line, "likely culprit: rank 0 (node)")) << line;
  EXPECT_TRUE(contains(line, "4 of 6 ranks wait for it")) << line;
}

TEST(RankProgress, TheRankWithMostWaitersIsTheCulprit) {
  const std::string line =
      last_line({busy(0, 3, "a"), busy(1, 3, "b"), waiting(2, {0, 1}), waiting(3, {1}), waiting(4, {2})});
  EXPECT_TRUE(contains(line, "likely culprit: rank 1 (node)")) << line;
  EXPECT_FALSE(contains(line, "rank 0")) << line;
}

// A collective names nobody: missing is who has begun fewer of them on that communicator, and nobody else.
TEST(RankProgress, WhoHasNotBegunACollectiveIsTheCulprit) {
  const auto in_collective = [](RankProgress progress, std::uint32_t begun) {
    progress.collectives[3] = {77, begun};
    progress.collectives[0] = {78, 1};
    if (progress.waiting != 0)
      progress.waited_for = {77, begun};
    return progress;
  };
  std::vector<RankProgress> ranks = {in_collective(waiting(0, {}), 5), in_collective(busy(1, 7, "forward"), 4),
                                     in_collective(waiting(2, {}), 5), busy(3, 7, "backward"),
                                     in_collective(busy(4, 7, "forward"), 5)};
  const std::string line = last_line(ranks);
  EXPECT_TRUE(contains(line, "likely culprit: rank 1 (node)")) << line;
  EXPECT_TRUE(contains(line, "2 of 5 ranks wait for it")) << line;
  EXPECT_TRUE(contains(progress_report(ranks), "waits for the receive of activations from rank 1 on"));
  ranks[1] = in_collective(busy(1, 7, "forward"), 5);
  EXPECT_EQ(last_line(ranks), "no culprit: no rank waits for another");
  EXPECT_TRUE(names_culprit(progress_report(ranks)));
}

TEST(RankProgress, CountsCollectivesByCommunicator) {
  ProgressWriter writer;
  const RankProgress& now = writer.current();
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
TEST(RankProgress, ASilentRankIsTheCulpritThoughItSaysThatItWaits) {
  std::vector<RankProgress> ranks = {waiting(0, {2}), waiting(1, {0, 2}), waiting(2, {0}), waiting(3, {0})};
  for (RankProgress& progress : ranks)
    progress.alive = 1000.5;
  EXPECT_TRUE(contains(last_line(ranks), "ranks 0, 2 wait for each other, a deadlock"));
  ranks[2].alive = 996;
  const std::string line = last_line(ranks);
  EXPECT_TRUE(contains(line, "likely culprit: rank 2 (node), which has not reported for 4.5 s")) << line;
  EXPECT_TRUE(contains(line, "3 of 4 ranks wait for it")) << line;
}

// Ranks that exchange a message wait for each other too, for a moment: killed there, they are no deadlock.
TEST(RankProgress, ADeadlockLasts) {
  std::vector<RankProgress> ranks = {waiting(0, {1}), waiting(1, {0})};  // since 998
  ranks[0].alive = ranks[1].alive = 998.4;
  EXPECT_EQ(last_line(ranks),
            "no culprit: ranks 0, 1 were exchanging messages, for 0.4 s: likely ended from outside, all at about the "
            "same time");
  ranks[0].since = 990;
  EXPECT_FALSE(contains(last_line(ranks), "deadlock")) << "rank 1 has only come to the wait";
  ranks[1].alive = 1000;
  ranks[0].alive = 999.9;
  EXPECT_EQ(last_line(ranks), "no culprit: ranks 0, 1 wait for each other, a deadlock");
  for (const auto& late : {std::vector{waiting(2, {0})}, {waiting(2, {3}), waiting(3, {2})}}) {
    std::vector<RankProgress> more = ranks;
    more.insert(more.end(), late.begin(), late.end());
    for (std::size_t i = 2; i < more.size(); ++i)
      more[i].since = more[i].alive = 999.9;
    EXPECT_EQ(last_line(more), "no culprit: ranks 0, 1 wait for each other, a deadlock") << "others came just now";
  }
}

TEST(RankProgress, OtherEnds) {
  EXPECT_TRUE(contains(last_line({waiting(0, {3})}), "rank 3, which recorded no progress"));
  RankProgress done = busy(1, 9, "");
  done.finished = 1;
  EXPECT_TRUE(contains(last_line({waiting(0, {1}), done}), "rank 1 (node), which exited before the others"));
  EXPECT_EQ(last_line({busy(0, 9, "forward"), done}), "likely culprit: rank 0 was killed or crashed");
  EXPECT_EQ(last_line({done}), "all ranks exited cleanly");
  EXPECT_EQ(last_line({busy(0, 9, "forward")}), "no culprit: no rank waits for another");
}

TEST(RankProgress, LongTextsAreCut) {
  ProgressWriter writer;
  writer.operation_begins(3, std::string(1000, 'x'), 1, 2);
  const std::vector<int> peers{0, 1, 2, 3, 4, 5, 6, 7};
  writer.wait_begins(std::string(1000, 'y'), std::string(1000, 'z'), 5, peers);
  EXPECT_EQ(std::string(writer.current().operation.data()).size(), writer.current().operation.size() - 1);
  EXPECT_EQ(std::string(writer.current().waits_for.data()).size(), writer.current().waits_for.size() - 1);
  EXPECT_EQ(writer.current().num_peers, RankProgress::max_peers);
  EXPECT_EQ(writer.current().peers[7], 7);
}

TEST(RankProgress, ContinuesInAnotherPlace) {
  ProgressWriter writer;
  writer.set_rank(3, 8);
  writer.step_begins(12);
  RankProgress place;
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
  writer.mark_finished();
  EXPECT_EQ(writer.current().finished, 1);
}

// What a stream of the device waits for is told while the host does not wait itself, and also after that.
TEST(RankProgress, StreamsWaitBehindTheHost) {
  ProgressWriter writer;
  const RankProgress& now = writer.current();
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

// A reader never sees one half of an old and one half of a new write.
TEST(RankProgress, CanBeReadAtAnyTime) {
  RankProgress shared;
  ProgressWriter writer;
  writer.keep_in(&shared);
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    for (int i = 0; !stop; ++i) {
      writer.operation_begins(i, std::to_string(i), i, i);
      if (i % 64 == 0)  // a rank computes between two writes
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  while (read_progress(shared).operation_index < 0)
    std::this_thread::yield();
  int torn = 0;
  for (int i = 0; i < 2000; ++i) {
    const RankProgress progress = read_progress(shared);
    torn += progress.operation_index != progress.microbatch ||
            std::to_string(progress.microbatch) != progress.operation.data();
  }
  stop = true;
  thread.join();
  EXPECT_EQ(torn, 0);
}

TEST(RankProgressPeers, WaitsAreWrittenDown) {
  ASSERT_GT(world().size(), 1) << "nobody to wait for";
  const RestoreSettings restore;
  RankProgress place;
  world().keep_progress_in(&place);
  const int size = world().size();
  const int previous = (world().rank() + size - 1) % size;
  const Communicator own = world().duplicate("silent");
  const auto in = make_tensor(std::vector<float>(4));
  world().set_deadline(0.1);
  EXPECT_THROW(irecv(ExecSpace(), own, in, previous, tags::activations).wait(), Error);
  EXPECT_EQ(place.rank, world().rank());
  EXPECT_EQ(place.world_size, size);
  EXPECT_EQ(place.waiting, 1) << "after an error the progress says what was waited for";
  EXPECT_EQ(place.num_peers, 1);
  EXPECT_EQ(place.peers[0], previous);
  EXPECT_STREQ(place.communicator.data(), "silent");
  EXPECT_TRUE(contains(place.waits_for.data(), "receive of activations")) << place.waits_for.data();
  world().set_deadline(60);
  world().keep_progress_in(nullptr);
  world().rank_progress().wait_ends();
  barrier(world());
  EXPECT_EQ(world().rank_progress().current().waiting, 0);
}

}  // namespace
}  // namespace espalier
