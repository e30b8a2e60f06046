// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/random.hpp"

using namespace espalier;

namespace {

TEST(Random, philox_gives_the_published_vectors) {
  const PhiloxBlock zero = philox(0, 0);  // kat_vectors of Random123: philox4x32-10
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
}

TEST(Random, numbers_are_named_by_seed_name_and_index) {
  const RandomStream stream(1, "a");
  EXPECT_EQ(stream.bits(5), RandomStream(1, "a").bits(5));
  EXPECT_NE(stream.bits(5), stream.bits(6));
  EXPECT_NE(stream.bits(5), RandomStream(2, "a").bits(5));
  EXPECT_NE(stream.bits(5), RandomStream(1, "b").bits(5));
  EXPECT_NE(stream.bits(std::uint64_t{1} << 32), stream.bits(0)) << "the counter has 64 bits";
}

// Mean and variance within five standard errors.
TEST(Random, uniform_and_normal_have_their_moments) {
  const RandomStream stream(3, "moments");
  constexpr int n = 200000;
  double uniform = 0, uniform2 = 0, normal = 0, normal2 = 0, normal4 = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    const double z = stream.normal(i);
    uniform += u / n;
    uniform2 += u * u / n;
    normal += z / n;
    normal2 += z * z / n;
    normal4 += z * z * z * z / n;
  }
  EXPECT_NEAR(uniform, 0.5, 5 * 0.29 / std::sqrt(n));
  EXPECT_NEAR(uniform2, 1.0 / 3, 5 * 0.3 / std::sqrt(n));
  EXPECT_NEAR(normal, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(normal2, 1, 5 * 1.42 / std::sqrt(n));
  EXPECT_NEAR(normal4, 3, 5 * 9.8 / std::sqrt(n));
}

TEST(Random, normal_is_finite_everywhere) {
  const RandomStream stream(4, "tails");
  double largest = 0;
  for (std::uint64_t i = 0; i < 1000000; ++i)
    largest = std::max(largest, std::abs(stream.normal(i)));
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 7);
}

TEST(Random, permuted_index_is_a_permutation) {
  for (const Index size : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097})
    for (const Index epoch : {0, 1, 7}) {
      std::vector<bool> seen(static_cast<std::size_t>(size));
      for (Index i = 0; i < size; ++i) {
        const Index to = permuted_index(42, epoch, i, size);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, size);
        ASSERT_FALSE(seen[static_cast<std::size_t>(to)]) << "size " << size << ", index " << i;
        seen[static_cast<std::size_t>(to)] = true;
      }
    }
}

TEST(Random, permutations_differ_by_seed_and_epoch_and_shuffle) {
  constexpr Index size = 10000;
  int same_epoch = 0, same_seed = 0, fixed = 0, neighbours = 0;
  for (Index i = 0; i < size; ++i) {
    const Index at = permuted_index(1, 0, i, size);
    same_epoch += at == permuted_index(1, 1, i, size);
    same_seed += at == permuted_index(2, 0, i, size);
    fixed += at == i;
    neighbours += permuted_index(1, 0, (i + 1) % size, size) == at + 1;
  }
  for (const int matches : {same_epoch, same_seed, fixed, neighbours})
    EXPECT_LT(matches, 10) << "a random permutation has about one";
}

TEST(Random, permuted_index_reaches_beyond_2_31) {
  constexpr Index size = (Index{1} << 40) + 12345;
  std::set<Index> seen;
  for (Index i = size - 1000; i < size; ++i)
    seen.insert(permuted_index(5, 0, i, size));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), size);
  EXPECT_GT(*seen.rbegin(), size / 2);
  EXPECT_THROW(permuted_index(5, 0, size, size), std::logic_error);
}

}  // namespace
