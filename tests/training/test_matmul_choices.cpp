// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "training/step/matmul_choices.hpp"

namespace espalier::test {
namespace {

using Kernels = std::map<std::string, std::string>;

TEST(StoredMatmulChoices, AreThoseOfTheSameRank) {
  const nlohmann::json stored = choices_to_json({{"library on A", {{"up", "1a"}, {"down", "2b"}}},
                                                 {"library on A", {{"up", "1b"}, {"down", "2b"}}},
                                                 {"library on B", {{"up", "1c"}}}});
  EXPECT_EQ(kernels_for_rank(stored, "library on A", 0), (Kernels{{"up", "1a"}, {"down", "2b"}}));
  EXPECT_EQ(kernels_for_rank(stored, "library on A", 1), (Kernels{{"up", "1b"}, {"down", "2b"}}));
  EXPECT_EQ(kernels_for_rank(stored, "library on B", 2), (Kernels{{"up", "1c"}}));
  EXPECT_TRUE(kernels_for_rank(stored, "another library", 0).empty());
  EXPECT_EQ(stored.size(), 2U) << "each library and device once";
  EXPECT_EQ(stored[0]["kernels"]["down"], (nlohmann::json{{"2b", {0, 1}}})) << "each kernel once";
}

TEST(StoredMatmulChoices, OfAMatmulThatTheRankHadNotAreAnothers) {
  const nlohmann::json stored =
      choices_to_json({{"library", {{"first stage", "1"}}}, {"library", {{"last stage", ""}}}});
  EXPECT_EQ(kernels_for_rank(stored, "library", 0), (Kernels{{"first stage", "1"}, {"last stage", ""}}));
  EXPECT_EQ(kernels_for_rank(stored, "library", 17), kernels_for_rank(stored, "library", 0));
}

// Where nothing is chosen by time, no collective is needed and checkpoints stay as they were.
TEST(StoredMatmulChoices, AreNoneOnHosts) {
  if (!matmul_choices().made_with.empty())
    GTEST_SKIP() << "kernels are timed here";
  EXPECT_FALSE(prefer_matmul_choices({"library", {{"product", "1"}}}));
  EXPECT_FALSE(prefer_matmul_choices({}));
}

}  // namespace
}  // namespace espalier::test
