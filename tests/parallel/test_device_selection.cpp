// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/pinned_pool.hpp"
#include "parallel/launch/device_selection.hpp"

namespace espalier {
namespace {

using Ids = std::vector<std::string>;

std::vector<int> indices(const std::vector<DeviceAssignment>& assignments) {
  std::vector<int> result;
  for (const DeviceAssignment& assignment : assignments)
    result.push_back(assignment.index);
  return result;
}

TEST(DeviceSelection, EachRankHasItsOwnWhereAllSeeAll) {
  const Ids all{"a", "b", "c", "d"};
  EXPECT_EQ(indices(assign_devices({all, all, all, all})), (std::vector<int>{0, 1, 2, 3}));
}

// srun --gpus-per-task=1: each rank sees one, as its first.
TEST(DeviceSelection, TheLaunchersChoiceStands) {
  const auto assignments = assign_devices({{"c"}, {"a"}, {"b"}});
  EXPECT_EQ(indices(assignments), (std::vector<int>{0, 0, 0}));
  for (const DeviceAssignment& assignment : assignments)
    EXPECT_EQ(assignment.sharers, 1);
}

TEST(DeviceSelection, RanksShareEvenly) {
  const Ids all{"a", "b"};
  const auto assignments = assign_devices({all, all, all, all, all});
  EXPECT_EQ(indices(assignments), (std::vector<int>{0, 1, 0, 1, 0}));
  EXPECT_EQ(assignments[0].sharers, 3);
  EXPECT_EQ(assignments[1].sharers, 2);
}

// Rank 1 sees only what rank 0 has taken.
TEST(DeviceSelection, OverlappingViewsAreNoticed) {
  const auto assignments = assign_devices({{"a", "b"}, {"a"}});
  EXPECT_EQ(assignments[0].sharers, 2);
  EXPECT_EQ(assignments[1].sharers, 2);
}

TEST(DeviceSelection, MoreRanksThanGpusNeedLeave) {
  const Ids one{"a"};
  const auto assignments = assign_devices({one, one});
  EXPECT_NO_THROW(require_allowed_sharing(assignments, 1, 1, 2));
  try {
    require_allowed_sharing(assignments, 1, 1, 1);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.report().what, "there are more ranks than GPUs");
    EXPECT_EQ(error.report().got, "2 ranks, which see 1 GPU: 2 on one of them");
    EXPECT_NE(error.report().todo.find("ESPALIER_RANKS_PER_GPU=2"), std::string::npos);
  }
}

TEST(DeviceSelection, RanksPerGpuIsANumber) {
  const char* const before = std::getenv("ESPALIER_RANKS_PER_GPU");
  const std::string user_setting = before == nullptr ? "" : before;
  unsetenv("ESPALIER_RANKS_PER_GPU");
  EXPECT_EQ(allowed_ranks_per_gpu(), 1);
  setenv("ESPALIER_RANKS_PER_GPU", "4", 1);
  EXPECT_EQ(allowed_ranks_per_gpu(), 4);
  for (const char* wrong : {"", "0", "-1", "2x", "many"}) {
    setenv("ESPALIER_RANKS_PER_GPU", wrong, 1);
    EXPECT_THROW(allowed_ranks_per_gpu(), Error) << wrong;
  }
  unsetenv("ESPALIER_RANKS_PER_GPU");
  if (before != nullptr)
    setenv("ESPALIER_RANKS_PER_GPU", user_setting.c_str(), 1);
}

TEST(PinnedPool, BlocksAreHandedOutAgain) {
  PinnedPool pool;
  const unsigned char* first = nullptr;
  {
    const auto block = pool.take(1000);
    const auto other = pool.take(1000);
    EXPECT_GE(block->size(), 1000u);
    EXPECT_NE(block->data(), other->data()) << "both are in use";
    first = block->data();
  }
  EXPECT_TRUE(pool.take(900)->data() == first);
  EXPECT_GE(pool.take(5000)->size(), 5000u);
}

}  // namespace
}  // namespace espalier
