// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "io/tokens/text_loader.hpp"

namespace espalier::test {
namespace {

// Each token but the first is the target of the one before it, once, on one rank.
void expect_all_targets(Index num_tokens, Index length, Index micro_batch, int ranks) {
  SCOPED_TRACE(::testing::Message() << num_tokens << " tokens, T = " << length << ", B = " << micro_batch << ", "
                                    << ranks << " ranks");
  std::vector<TokenId> tokens(static_cast<std::size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), 100);
  std::vector<int> times(tokens.size(), 0);
  Index samples = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const TextLoader loader(tokens,
                            {.micro_batch_size = micro_batch, .sequence_length = length, .rank = rank, .size = ranks});
    EXPECT_EQ(loader.valid_tokens(), num_tokens - 1);
    samples = loader.num_samples();
    for (Index i = 0; i < loader.num_batches(); ++i) {
      const Batch batch = loader.batch(i);
      ASSERT_EQ(std::ssize(batch.inputs), micro_batch * length);
      ASSERT_EQ(std::ssize(batch.targets), micro_batch * length);
      for (std::size_t t = 0; t < batch.targets.size(); ++t)
        if (batch.targets[t] >= 0) {
          EXPECT_EQ(batch.targets[t], batch.inputs[t] + 1);
          ++times[static_cast<std::size_t>(batch.targets[t] - 100)];
        }
    }
  }
  EXPECT_EQ(samples, (num_tokens - 1 + length - 1) / length);
  EXPECT_EQ(times.front(), 0);
  EXPECT_EQ(std::count(times.begin() + 1, times.end(), 1), num_tokens - 1);
}

TEST(TextLoader, HasEachTargetOnce) {
  for (const Index tokens : {2, 3, 16, 17, 18, 33, 50})
    for (const Index length : {1, 7, 16})
      for (const Index micro_batch : {1, 3})
        for (const int ranks : {1, 2})
          expect_all_targets(tokens, length, micro_batch, ranks);
}

TEST(TextLoader, TheLastWindowIsFull) {
  const TextLoader loader({1, 2, 3, 4, 5, 6}, {.micro_batch_size = 2, .sequence_length = 4});
  const Batch batch = loader.batch(0);
  EXPECT_EQ(batch.inputs, (std::vector<TokenId>{1, 2, 3, 4, 2, 3, 4, 5}));
  EXPECT_EQ(batch.targets, (std::vector<TokenId>{2, 3, 4, 5, -1, -1, -1, 6}));
}

}  // namespace
}  // namespace espalier::test
