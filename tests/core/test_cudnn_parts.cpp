// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/ops/cudnn_parts.hpp"

namespace espalier {
namespace {

void expect_part(Index batch, Index num_heads, Index num_kv_heads, Index sequence_length, CudnnPart wanted) {
  const CudnnPart part = cudnn_backward_part(batch, num_heads, num_kv_heads, sequence_length);
  EXPECT_EQ(part.sequences, wanted.sequences) << batch << ", " << num_heads << ", " << sequence_length;
  EXPECT_EQ(part.heads, wanted.heads) << batch << ", " << num_heads << ", " << sequence_length;
}

TEST(CudnnParts, backward_takes_sequences_with_all_heads_or_heads_of_one) {
  expect_part(4, 12, 12, 1024, {4, 12});   // all
  expect_part(32, 12, 12, 1024, {8, 12});  // 10 would fit, 8 divide
  expect_part(7, 25, 25, 1024, {1, 25});
  expect_part(16, 32, 32, 2048, {1, 32});
  expect_part(2, 32, 32, 4096, {1, 8});
  expect_part(1, 3, 3, 8192, {1, 1});
  expect_part(1, 8, 8, 32768, {1, 1});  // one head at least, whatever is kept
}

TEST(CudnnParts, heads_that_share_keys_stay_together) {
  expect_part(8, 9, 3, 2048, {2, 9});
  expect_part(2, 32, 8, 4096, {1, 8});
  expect_part(1, 40, 10, 2048, {1, 20});  // 32 would fit, 5 groups of 4 divide
  expect_part(1, 32, 8, 8192, {1, 4});    // two heads would fit
}

// What cuDNN 9.19 says that its plan of backward wants on an H200 (CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE); the gap that
// aligns it comes on top. On an A100 it is up to 128 bytes less, and less where tiles of 128 keys are cut.
TEST(CudnnParts, the_bound_is_what_cudnn_wants) {
  constexpr std::size_t gap = 256;
  EXPECT_EQ(cudnn_workspace_bound({32, 1024, 12, 64, 12}), 201326848 + gap);
  EXPECT_EQ(cudnn_workspace_bound({8, 1024, 25, 64, 25}), 209715456 + gap);
  EXPECT_EQ(cudnn_workspace_bound({4, 2048, 32, 64, 32}), 268435712 + gap);
  EXPECT_EQ(cudnn_workspace_bound({1, 8192, 32, 64, 32}), 268435712 + gap);
  EXPECT_EQ(cudnn_workspace_bound({2, 129, 3, 64, 3}), 590080 + gap);
  EXPECT_EQ(cudnn_workspace_bound({1, 77, 1, 64, 1}), 33024 + gap);
  EXPECT_EQ(cudnn_workspace_bound({4, 1024, 12, 64, 12}), 100663552 + gap);
  EXPECT_EQ(cudnn_workspace_bound({1, 16384, 32, 64, 32}), 536871168 + gap);
  EXPECT_EQ(cudnn_workspace_bound({8, 2048, 9, 64, 3}), 160432384 + gap);  // groups
  EXPECT_EQ(cudnn_workspace_bound({1, 8192, 32, 128, 8}), 553648384 + gap);
  EXPECT_EQ(cudnn_workspace_bound({1, 8192, 32, 128, 8, 4096}), 553648384 + gap);  // and windows
  EXPECT_EQ(cudnn_workspace_bound({2, 129, 6, 80, 1, 33}), 1675264 + gap);
}

TEST(CudnnParts, nothing_is_held_where_own_kernels_compute) {
  EXPECT_EQ(cudnn_workspace_bound({1, 65536, 8, 64, 8}), 0u);   // cuDNN would want 8 GiB for one head
  EXPECT_EQ(cudnn_workspace_bound({4, 1024, 12, 12, 12}), 0u);  // no multiple of 8
  EXPECT_EQ(cudnn_workspace_bound({4, 1024, 12, 264, 12}), 0u);
  EXPECT_GT(cudnn_workspace_bound({4, 1024, 12, 136, 12}), 0u);  // on Hopper
}

}  // namespace
}  // namespace espalier
