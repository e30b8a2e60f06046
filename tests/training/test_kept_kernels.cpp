// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "training/step/kept_kernels.hpp"

namespace espalier::test {
namespace {

using Kernels = std::map<std::string, std::string>;

TEST(KeptKernels, AreThoseOfTheSameRank) {
  const nlohmann::json stored = stored_choices({{"library on A", {{"up", "1a"}, {"down", "2b"}}},
                                                {"library on A", {{"up", "1b"}, {"down", "2b"}}},
                                                {"library on B", {{"up", "1c"}}}});
  EXPECT_EQ(kept_kernels(stored, "library on A", 0), (Kernels{{"up", "1a"}, {"down", "2b"}}));
  EXPECT_EQ(kept_kernels(stored, "library on A", 1), (Kernels{{"up", "1b"}, {"down", "2b"}}));
  EXPECT_EQ(kept_kernels(stored, "library on B", 2), (Kernels{{"up", "1c"}}));
  EXPECT_TRUE(kept_kernels(stored, "another library", 0).empty());
  EXPECT_EQ(stored.size(), 2U) << "each library and device once";
  EXPECT_EQ(stored[0]["kernels"]["down"], (nlohmann::json{{"2b", {0, 1}}})) << "each kernel once";
}

TEST(KeptKernels, OfAProductThatTheRankHadNotAreAnothers) {
  const nlohmann::json stored =
      stored_choices({{"library", {{"first stage", "1"}}}, {"library", {{"last stage", ""}}}});
  EXPECT_EQ(kept_kernels(stored, "library", 0), (Kernels{{"first stage", "1"}, {"last stage", ""}}));
  EXPECT_EQ(kept_kernels(stored, "library", 17), kept_kernels(stored, "library", 0));
}

// Where nothing is chosen by time, no collective is needed and checkpoints stay as they were.
TEST(KeptKernels, AreNoneOnHosts) {
  if (!matmul_choices().made_with.empty())
    GTEST_SKIP() << "kernels are timed here";
  EXPECT_FALSE(prefer_matmul_choices({"library", {{"product", "1"}}}));
  EXPECT_FALSE(prefer_matmul_choices({}));
}

}  // namespace
}  // namespace espalier::test
