// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/message_delays.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

// Odd, smaller than any number of ranks, around the limit between the two ways (4096 bytes), several kernel blocks.
const std::vector<Index> sizes{1, 2, 3, 5, 511, 512, 1023, 1025, 4099, 70001};

template <class T>
class CollectivesOfSums : public testing::Test {};
using SumTypes = testing::Types<float, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(CollectivesOfSums, SumTypes);

TYPED_TEST(CollectivesOfSums, AllReduceAddsInRankOrder) {
  using T = TypeParam;
  for (const Index count : sizes) {
    const auto data = make_tensor(contributions<T>(world().rank(), count));
    all_reduce(ExecSpace(), world(), data);
    EXPECT_TRUE(same_bits(to_vector(data), rank_order_sums<T>(world().size(), count))) << "count " << count;
  }
}

// 256 + 1 is 256 in bfloat16: the others' values count only if they are added in fp32.
TEST(Collectives, SixteenBitValuesAreAddedInFp32) {
  const int size = world().size();
  const auto wanted = static_cast<float>(bfloat16(static_cast<float>(256 + size - 1)));
  for (const Index count : sizes) {
    const bfloat16 ours(world().rank() == 0 ? 256.0F : 1.0F);
    const auto data = make_tensor(std::vector<bfloat16>(static_cast<std::size_t>(count), ours));
    all_reduce(ExecSpace(), world(), data);
    for (const bfloat16 value : to_vector(data))
      ASSERT_EQ(static_cast<float>(value), wanted) << "count " << count;
  }
}

TYPED_TEST(CollectivesOfSums, ReduceScatterAddsInRankOrder) {
  using T = TypeParam;
  const int size = world().size();
  for (const Index count : sizes) {
    const auto input = make_tensor(contributions<T>(world().rank(), count * size));
    const auto output = make_tensor(std::vector<T>(static_cast<std::size_t>(count)));
    reduce_scatter(ExecSpace(), world(), output, input);
    const auto all = rank_order_sums<T>(size, count * size);
    const auto begin = all.begin() + world().rank() * count;
    EXPECT_TRUE(same_bits(to_vector(output), std::vector<T>(begin, begin + count))) << "count " << count;
    EXPECT_TRUE(same_bits(to_vector(input), contributions<T>(world().rank(), count * size))) << "input changed";
  }
}

TYPED_TEST(CollectivesOfSums, HostSpansAndSingleValues) {
  using T = TypeParam;
  std::vector<T> values = contributions<T>(world().rank(), 7);
  all_reduce(world(), std::span<T>(values));
  EXPECT_TRUE(same_bits(values, rank_order_sums<T>(world().size(), 7)));
  const T rank = static_cast<T>(world().rank());
  const T size = static_cast<T>(world().size());
  EXPECT_EQ(all_reduce(world(), rank), static_cast<T>(size * (size - 1) / 2));
  EXPECT_EQ(all_reduce(world(), rank, ReduceOp::max), size - 1);
  EXPECT_EQ(all_reduce(world(), rank, ReduceOp::min), T{0});
}

TYPED_TEST(CollectivesOfSums, MaxAndMin) {
  using T = TypeParam;
  for (const Index count : sizes) {
    const int rank = world().rank();
    std::vector<T> values(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i)  // the largest wanders from rank to rank
      values[static_cast<std::size_t>(i)] = static_cast<T>((i + rank) % world().size());
    const auto highest = make_tensor(values);
    all_reduce(ExecSpace(), world(), highest, ReduceOp::max);
    EXPECT_TRUE(same_bits(to_vector(highest), std::vector<T>(values.size(), static_cast<T>(world().size() - 1))));
    const auto lowest = make_tensor(values);
    all_reduce(ExecSpace(), world(), lowest, ReduceOp::min);
    EXPECT_TRUE(same_bits(to_vector(lowest), std::vector<T>(values.size(), T{0})));
  }
}

// Without this the tests above would also pass for sums in order of arrival, or with the own value first.
TEST(CollectivesOfThree, TheTestValuesTellOrdersApart) {
  ASSERT_GE(world().size(), 3) << "the sum of two commutes";
  int differing = 0;
  for (Index i = 0; i < 1000; ++i)
    differing += own_first_sum<float>(2, world().size(), i) != rank_order_sum<float>(world().size(), i);
  EXPECT_GT(differing, 100);
}

TEST(Collectives, SameBitsWhateverTheDelaysAndCuts) {
  const RestoreSettings restore;
  const Index count = 3001;
  const auto wanted = rank_order_sums<float>(world().size(), count);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    delay_messages(world(), 3000, seed);
    world().set_max_message_bytes(seed % 2 == 0 ? 1000
                                                : std::size_t{1} << 30);  // 1000: cut inside a slice, 12 bytes left
    const auto data = make_tensor(contributions<float>(world().rank(), count));
    all_reduce(ExecSpace(), world(), data);
    EXPECT_TRUE(same_bits(to_vector(data), wanted)) << "seed " << seed;
  }
}

TEST(Collectives, NoFloatIsLostInTheMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Index count : {Index{3}, Index{2000}}) {  // both ways
    for (int owner = 0; owner < world().size(); ++owner) {
      const auto data =
          make_tensor(std::vector<float>(static_cast<std::size_t>(count), world().rank() == owner ? nan : 1.0f));
      all_reduce(ExecSpace(), world(), data, ReduceOp::max);
      EXPECT_TRUE(std::isnan(to_vector(data)[1]));
      EXPECT_TRUE(std::isnan(all_reduce(world(), world().rank() == owner ? nan : 1.0f, ReduceOp::max)));
      EXPECT_TRUE(std::isnan(all_reduce(world(), world().rank() == owner ? nan : 1.0f, ReduceOp::min)));
    }
  }
}

TEST(Collectives, AllGatherOrdersByRank) {
  for (const Index count : sizes) {
    const auto input = make_tensor(std::vector<double>(static_cast<std::size_t>(count), world().rank() + 1.0));
    const auto output = make_tensor(std::vector<double>(static_cast<std::size_t>(count * world().size())));
    all_gather(ExecSpace(), world(), output, input);
    std::vector<double> wanted;
    for (int rank = 0; rank < world().size(); ++rank)
      wanted.insert(wanted.end(), static_cast<std::size_t>(count), rank + 1.0);
    EXPECT_TRUE(same_bits(to_vector(output), wanted));
  }
}

TEST(Collectives, AllGatherInPlaceOfBfloat16) {
  const int size = world().size();
  const auto all = make_tensor(std::vector<bfloat16>(static_cast<std::size_t>(3 * size), bfloat16(-1.0f)));
  const Tensor<bfloat16, 1> own(all.data() + 3 * world().rank(), 3);
  Kokkos::deep_copy(own, bfloat16(static_cast<float>(world().rank())));
  all_gather(ExecSpace(), world(), all, own);
  const auto values = to_vector(all);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(static_cast<float>(values[i]), static_cast<float>(i / 3));
}

TEST(Collectives, TensorsOfAnyRank) {
  const Tensor<float, 3> cube("espalier::other::cube", 3, 5, 7);
  Kokkos::deep_copy(cube, static_cast<float>(world().rank() + 1));
  all_reduce(ExecSpace(), world(), cube);
  const float size = static_cast<float>(world().size());
  for (const float value : to_vector(Tensor<float, 1>(cube.data(), 105)))
    EXPECT_EQ(value, size * (size + 1) / 2);
}

TEST(Collectives, BroadcastFromEachRoot) {
  for (int root = 0; root < world().size(); ++root)
    for (const Index count : {Index{1}, Index{1025}}) {
      const auto data = make_tensor(contributions<double>(world().rank(), count));
      broadcast(ExecSpace(), world(), data, root);
      EXPECT_TRUE(same_bits(to_vector(data), contributions<double>(root, count)));
      std::vector<std::int64_t> host = contributions<std::int64_t>(world().rank(), count);
      broadcast(world(), std::span<std::int64_t>(host), root);
      EXPECT_TRUE(same_bits(host, contributions<std::int64_t>(root, count)));
    }
}

TEST(Collectives, BytesAreCounted) {
  const int size = world().size();
  const auto before = world().traffic().bytes;
  const auto data = make_tensor(contributions<float>(world().rank(), Index{1024} * size * 4));
  all_reduce(ExecSpace(), world(), data);  // two times (size - 1) slices
  EXPECT_EQ(world().traffic().bytes - before, static_cast<std::uint64_t>(2 * (size - 1) * 1024 * 4 * 4));
}

TEST(Collectives, WrongExtentsAreRefused) {
  const auto input = make_tensor(std::vector<float>(4));
  const auto output = make_tensor(std::vector<float>(static_cast<std::size_t>(4 * world().size() + 1)));
  EXPECT_THROW(all_gather(ExecSpace(), world(), output, input), std::logic_error);
}

TEST(Collectives, SplitGroupsDoNotMix) {
  const int parity = world().rank() % 2;
  const Communicator half = world().split(parity, world().rank(), "half");
  EXPECT_EQ(half.size(), (world().size() + 1 - parity) / 2);
  EXPECT_EQ(half.world_rank(half.rank()), world().rank());
  const auto data = make_tensor(std::vector<float>(5000, static_cast<float>(world().rank())));
  all_reduce(ExecSpace(), half, data);
  float wanted = 0;
  for (int rank = parity; rank < world().size(); rank += 2)
    wanted += static_cast<float>(rank);
  EXPECT_EQ(to_vector(data)[4999], wanted);
}

TEST(Collectives, BarrierWaitsForTheLast) {
  // Ranks of one host have one clock, so this holds however late a rank gets its core.
  const auto now = [] { return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count()); };
  if (world().rank() == 0)
    usleep(50000);
  double last_came = now();
  barrier(world());
  const double left = now();
  broadcast(world(), std::span<double>(&last_came, 1), 0);
  EXPECT_GE(left, last_came);
}

// The deadline names what was waited for and who did not come; afterwards the job can only end, so every rank
// waits on a communicator of its own for a message that nobody sends.
TEST(CollectivesPeers, DeadlineNamesWhoDidNotCome) {
  ASSERT_GT(world().size(), 1) << "nobody to wait for";
  const RestoreSettings restore;
  const Communicator doomed = world().duplicate("doomed");
  world().set_deadline(0.2);
  if (world().rank() != 1) {
    try {
      barrier(doomed);
      FAIL() << "rank 1 never came, and the barrier let us pass";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::communication);
      const std::string text = error.what();
      EXPECT_NE(text.find("for barrier without success"), std::string::npos) << text;
      EXPECT_NE(text.find("nothing from rank 1\n"), std::string::npos) << text;
      EXPECT_NE(text.find("communicator doomed"), std::string::npos) << text;
    }
  }
  *world().state()->context = restore.before;
  barrier(world());
}

}  // namespace
}  // namespace espalier
