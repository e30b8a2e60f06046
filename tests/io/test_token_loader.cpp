// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "io/tokens/token_loader.hpp"
#include "tests/io/one_set.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

class TokenLoaderTest : public ::testing::Test {
 protected:
  TokenLoaderTest() {  // 25 + 12 windows of 4; every token names its place
    write("a", 0, 103);
    write("b", 1000, 49);
  }
  void write(const std::string& name, int first, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(first + i);
    TokenFileWriter writer(directory_ / name, "byte", 2000);
    writer.append(tokens);
    writer.finish();
  }
  std::vector<TokenFile> files() const {
    std::vector<TokenFile> list;
    list.emplace_back(directory_ / "a");
    list.emplace_back(directory_ / "b");
    return list;
  }
  TokenLoader loader(Index micro, Index global, int rank = 0, int size = 1, std::uint64_t seed = 5) const {
    return one_set_loader(files(), {.micro_batch_size = micro,
                                    .sequence_length = 4,
                                    .global_batch_size = global,
                                    .rank = rank,
                                    .size = size,
                                    .seed = seed});
  }
  // The inputs of a step of all ranks in global order.
  std::vector<TokenId> step(Index micro, Index global, int size, Index position) const {
    std::vector<TokenId> tokens;
    for (int rank = 0; rank < size; ++rank) {
      TokenLoader ours = loader(micro, global, rank, size);
      ours.seek(position);
      for (const Batch& batch : ours.next_step()) {
        EXPECT_EQ(batch.first_sample, position + static_cast<Index>(tokens.size()) / 4);
        tokens.insert(tokens.end(), batch.inputs.begin(), batch.inputs.end());
      }
    }
    return tokens;
  }
  TemporaryDirectory directory_;
};
using SequentialLoaderTest = TokenLoaderTest;

}  // namespace

TEST_F(TokenLoaderTest, an_epoch_has_every_window_once_and_the_next_is_shuffled_anew) {
  TokenLoader ours = loader(1, 1);
  const Index samples = ours.sets().at(0).num_samples();
  ASSERT_EQ(samples, 37);
  EXPECT_EQ(ours.num_tokens(), 152);
  EXPECT_EQ(ours.valid_tokens(), 4);
  std::vector<std::vector<TokenId>> orders(2);
  for (auto& order : orders)
    for (Index i = 0; i < samples; ++i) {
      const Batch batch = ours.next_step().at(0);
      order.push_back(batch.inputs[0]);
      for (std::size_t t = 0; t < 4; ++t) {
        EXPECT_EQ(batch.inputs[t], batch.inputs[0] + static_cast<TokenId>(t));
        EXPECT_EQ(batch.targets[t], batch.inputs[t] + 1);
      }
    }
  EXPECT_EQ(std::set<TokenId>(orders[0].begin(), orders[0].end()).size(), 37u);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
  std::sort(orders[0].begin(), orders[0].end());
  std::sort(orders[1].begin(), orders[1].end());
  EXPECT_EQ(orders[0], orders[1]);
}

TEST_F(TokenLoaderTest, a_step_has_the_same_tokens_for_any_number_of_ranks) {
  for (const Index position : {0, 12, 36, 120}) {
    const auto wanted = step(12, 12, 1, position);
    for (const int size : {1, 2, 3, 4})
      for (const Index micro : {1, 3})
        if (12 % (micro * size) == 0) {
          EXPECT_EQ(step(micro, 12, size, position), wanted) << size << " ranks, position " << position;
        }
  }
}

TEST_F(TokenLoaderTest, goes_on_from_any_position) {
  TokenLoader straight = loader(2, 4);
  for (Index step_index = 0; step_index < 30; ++step_index) {
    TokenLoader resumed = loader(2, 4);
    resumed.seek(straight.position());
    const auto wanted = straight.next_step();
    const auto found = resumed.next_step();
    ASSERT_EQ(found.size(), 2u);
    for (std::size_t m = 0; m < 2; ++m) {
      EXPECT_EQ(found[m].inputs, wanted[m].inputs);
      EXPECT_EQ(found[m].targets, wanted[m].targets);
    }
    EXPECT_EQ(resumed.position(), 4 * (step_index + 1));
  }
}

TEST_F(TokenLoaderTest, the_seed_decides) {
  EXPECT_NE(loader(12, 12).next_step()[0].inputs, loader(12, 12, 0, 1, 6).next_step()[0].inputs);
}

TEST_F(TokenLoaderTest, bad_sizes_are_refused) {
  expect_error(ExitCode::usage, {"multiple of 2 x 3 = 6", "to 6 or 12"}, [&] { loader(2, 10, 0, 3); });
  expect_error(ExitCode::usage, {"to 6\n"}, [&] {
    try {
      loader(2, 4, 0, 3);
    } catch (const Error& error) {
      throw Error(error.code(), {.what = std::string(error.what()) + "\n"});
    }
  });
  expect_error(ExitCode::data, {"/b", "49 tokens", "at least 50"},
               [&] { one_set_loader(files(), {.sequence_length = 49}); });
}

TEST_F(TokenLoaderTest, tokens_beyond_the_vocabulary_are_named_when_met) {
  const TokenLoader ours = one_set_loader(
      files(), {.micro_batch_size = 37, .sequence_length = 4, .global_batch_size = 37, .vocab_size = 1040});
  expect_error(ExitCode::data, {"/b: token 40 of 49", "id 1040"}, [&] { ours.batch(0, 0); });
}

TEST_F(SequentialLoaderTest, sees_the_same_samples_for_any_number_of_ranks) {
  for (const Index limit : {0, 10, 1000}) {
    const Index samples = limit == 10 ? 10 : 37;
    for (const int size : {1, 2, 3, 4})
      for (const Index micro : {1, 4}) {
        std::vector<TokenId> seen;
        Index valid = 0;
        for (int rank = 0; rank < size; ++rank) {
          const SequentialLoader ours(
              files(), {.micro_batch_size = micro, .sequence_length = 4, .rank = rank, .size = size}, limit);
          EXPECT_EQ(ours.valid_tokens(), samples * 4);
          EXPECT_EQ(ours.num_batches(), (samples + micro * size - 1) / (micro * size));
          for (Index i = 0; i < ours.num_batches(); ++i) {
            const Batch batch = ours.batch(i);
            for (std::size_t t = 0; t < batch.targets.size(); ++t) {
              valid += batch.targets[t] >= 0;
              if (batch.targets[t] >= 0 && t % 4 == 0)
                seen.push_back(batch.inputs[t]);
            }
          }
        }
        EXPECT_EQ(valid, samples * 4);
        std::sort(seen.begin(), seen.end());
        ASSERT_EQ(static_cast<Index>(seen.size()), samples);
        for (Index i = 0; i < samples; ++i)
          EXPECT_EQ(seen[static_cast<std::size_t>(i)], i < 25 ? 4 * i : 1000 + 4 * (i - 25));
      }
  }
}
