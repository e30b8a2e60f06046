// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Collectives that the MPI library carries, on as few ranks as a test has; beside the same by messages between all.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

class LibraryCollectivesPeers : public testing::Test {
 protected:
  LibraryCollectivesPeers() { world().set_max_direct_ranks(1); }
  RestoreSettings restore_;
};

/// Bytes that rank `from` has for rank `to`: of unlike sizes, some none.
std::size_t bytes_between(int from, int to) { return static_cast<std::size_t>((3 * from + 5 * to) % 7) * 24; }

/// One after another, with gaps, which belong to nobody.
std::vector<ByteRange> with_gaps(const std::vector<std::size_t>& sizes) {
  std::vector<ByteRange> ranges;
  std::size_t begin = 8;
  for (const std::size_t bytes : sizes) {
    ranges.push_back({begin, bytes});
    begin += bytes + 16;
  }
  return ranges;
}

std::vector<unsigned char> pattern(int rank, std::size_t count) {
  std::vector<unsigned char> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<unsigned char>(37 * rank + static_cast<int>(i % 251));
  return bytes;
}

struct Moved {
  std::vector<unsigned char> all_to_all;
  std::vector<unsigned char> all_gather;
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
};

Moved move_slices(const Communicator& communicator) {
  const int rank = communicator.rank();
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::size_t> out;
  std::vector<std::size_t> in;
  std::vector<std::size_t> own;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    out.push_back(bytes_between(rank, peer));
    in.push_back(bytes_between(peer, rank));
    own.push_back(static_cast<std::size_t>(peer % 3) * 40);  // nothing of rank 0
  }
  const auto to = with_gaps(out);
  const auto from = with_gaps(in);
  const auto slices = with_gaps(own);
  const Traffic before = communicator.traffic();
  Moved moved;
  const auto input = pattern(rank, to.back().end());
  moved.all_to_all.assign(from.back().end(), 255);
  MessageSet messages(communicator);
  messages.start_all_to_all(input.data(), to, moved.all_to_all.data(), from, tags::data);
  messages.wait("all_to_all");
  moved.all_gather.assign(slices[size - 1].end(), 255);
  const ByteRange ours = slices[static_cast<std::size_t>(rank)];
  const auto shard = pattern(rank, ours.bytes);
  std::copy(shard.begin(), shard.end(), moved.all_gather.begin() + static_cast<std::ptrdiff_t>(ours.begin));
  const bool in_place = rank % 2 == 0;  // allowed to differ from rank to rank
  messages.start_all_gather(in_place ? moved.all_gather.data() + ours.begin : shard.data(), moved.all_gather.data(),
                            slices, tags::data);
  messages.wait("all_gather");
  moved.bytes = communicator.traffic().bytes - before.bytes;
  moved.messages = communicator.traffic().messages - before.messages;
  return moved;
}

TEST_F(LibraryCollectivesPeers, SlicesComeToTheSamePlacesAsByMessages) {
  const Communicator own = world().duplicate("slices");
  world().set_max_direct_ranks(16);
  const Moved direct = move_slices(own);
  EXPECT_EQ(own.state()->num_collectives, 0U);
  world().set_max_direct_ranks(1);
  for (const std::size_t most : {std::size_t{1} << 30, std::size_t{64}, std::size_t{9}}) {  // in units beyond these
    world().set_max_message_bytes(most);
    const Moved library = move_slices(own);
    EXPECT_EQ(library.all_to_all, direct.all_to_all) << "most " << most;
    EXPECT_EQ(library.all_gather, direct.all_gather) << "most " << most;
    EXPECT_EQ(library.bytes, direct.bytes);
    EXPECT_EQ(library.messages, 2U) << "one for each collective";
  }
  EXPECT_EQ(own.state()->num_collectives, 6U);
}

TEST_F(LibraryCollectivesPeers, BroadcastsInPiecesAndBarriers) {
  const Communicator own = world().duplicate("broadcasts");
  world().set_max_message_bytes(100);
  for (int root = 0; root < own.size(); ++root) {
    std::vector<double> values = contributions<double>(own.rank(), 31);
    const Traffic before = own.traffic();
    broadcast(own, std::span<double>(values), root);
    EXPECT_TRUE(same_bits(values, contributions<double>(root, 31)));
    EXPECT_EQ(own.traffic().bytes - before.bytes, own.rank() == root ? 248U : 0U);
  }
  EXPECT_EQ(own.state()->num_collectives, static_cast<std::uint64_t>(3 * own.size()));
  barrier(own);
  EXPECT_EQ(own.state()->num_collectives, static_cast<std::uint64_t>(3 * own.size() + 1));
}

// As the stamps of messages: when the last of the others came.
TEST_F(LibraryCollectivesPeers, StampsSayWhenTheLastCame) {
  const Communicator own = world().duplicate("stamps");
  const auto size = static_cast<std::size_t>(own.size());
  std::vector<ByteRange> ranges;
  for (std::size_t r = 0; r < size; ++r)
    ranges.push_back({r, 1});
  const std::vector<char> input(size, 'a');
  std::vector<char> output(size);
  barrier(own);
  const bool is_last = own.rank() == own.size() - 1;
  if (is_last)
    usleep(50000);
  double began = own.clock().now();
  MessageSet messages(own);
  messages.start_all_to_all(input.data(), ranges, output.data(), ranges, tags::data, true);
  messages.wait("all_to_all");
  broadcast(own, std::span<double>(&began, 1), own.size() - 1);
  EXPECT_GE(messages.sent_at(), began);
  EXPECT_EQ(own.traffic().messages, is_last ? 3U : 3U) << "barrier, all_to_all, broadcast; the stamps do not count";
}

// The library cannot be called back: what comes behind a deadline lands in memory that nobody else has by then.
TEST_F(LibraryCollectivesPeers, NothingIsWrittenBehindADeadline) {
  const ExecSpace exec;
  constexpr Index count = 64;
  const int late = world().size() - 1;
  const auto meet_by_messages = [] {
    world().set_deadline(60);
    world().set_max_direct_ranks(16);
    barrier(world());
  };
  const auto expect_untouched = [&](const std::string& what, const auto& collective) {
    const Communicator own = world().duplicate(what);
    const auto tensor = allocate<float>(Category::other, "tensor", count);
    const auto all = allocate<float>(Category::other, "all", count * own.size());
    const auto scratch = own.scratch<float>(count * own.size());
    const auto call = [&] { collective(own, tensor, all); };
    world().set_max_direct_ranks(1);
    world().set_deadline(0.2);
    if (own.rank() != late) {
      EXPECT_THROW(call(), Error);
    }
    for (const auto& memory : {tensor, all, scratch})
      Kokkos::deep_copy(memory, own.rank() == late ? 1.0F : -1.0F);
    meet_by_messages();
    if (own.rank() == late) {
      world().set_max_direct_ranks(1);
      call();
    }
    for (int i = 0; i < 20; ++i) {  // the library goes on meanwhile
      meet_by_messages();
      usleep(1000);
    }
    if (own.rank() == late)
      return;
    for (const auto& memory : {tensor, all, scratch})
      EXPECT_EQ(to_vector(memory), std::vector<float>(memory.extent(0), -1.0F)) << what;
  };
  expect_untouched("broadcast", [&](const Communicator& own, const auto& tensor, const auto&) {
    broadcast(exec, own, tensor, late);
  });
  expect_untouched("all_gather", [&](const Communicator& own, const auto& tensor, const auto& all) {
    all_gather(exec, own, all, tensor);
  });
  expect_untouched("all_reduce",
                   [&](const Communicator& own, const auto& tensor, const auto&) { all_reduce(exec, own, tensor); });
  expect_untouched("reduce_scatter", [&](const Communicator& own, const auto& tensor, const auto& all) {
    reduce_scatter(exec, own, tensor, all);
  });
}

// Values of a bucket come earlier to some ranks than to others: the sums go round in the order of the buckets all the
// same, on a communicator of their own.
TEST_F(LibraryCollectivesPeers, SumsOfManyBucketsWhateverThePolls) {
  std::mt19937 random(static_cast<unsigned>(7 + world().rank()));
  const Index count = 4096;
  const auto segments = segments_of(std::vector<Index>(64, count / 64));
  for (const int zero_stage : {0, 1}) {
    const auto gradients = allocate<float>(Category::gradients, "polls", count);
    GradientReducer<float> reducer(
        ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
        {.smallest_bucket_bytes = 256, .bucket_bytes = 256, .buckets_in_flight = 8, .zero_stage = zero_stage});
    for (int step = 0; step < 10; ++step) {
      Kokkos::deep_copy(gradients, make_tensor(contributions<float>(world().rank(), count)));
      reducer.begin_step();
      for (int s = static_cast<int>(segments.size()) - 1; s >= 0; --s) {
        reducer.mark_ready(s);
        usleep(random() % 300);
        for (unsigned polls = random() % 4; polls > 0; --polls)
          reducer.progress();
      }
      reducer.wait();
      const auto sums = to_vector(gradients);
      for (const IndexRange& range : reducer.owned())
        for (Index i = range.begin; i < range.end; ++i)
          ASSERT_EQ(sums[static_cast<std::size_t>(i)], (rank_order_sum<float>(world().size(), i)));
      reducer.gather_updated_weights(FlatStorage<float>(gradients));
      EXPECT_TRUE(same_bits(to_vector(gradients), rank_order_sums<float>(world().size(), count)));
    }
  }
}

}  // namespace
}  // namespace espalier
