// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "core/tensor.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

StoredBlock block_of(std::vector<Index> shape, std::vector<Index> start, std::vector<Index> count) {
  StoredBlock block;
  block.name = "w";
  block.global_shape = std::move(shape);
  block.start = std::move(start);
  block.count = std::move(count);
  return block;
}

// Cuts the box again and again, along any dimension.
void cut(const StoredBlock& block, int times, std::mt19937& random, std::vector<StoredBlock>& parts) {
  const std::size_t d = random() % block.count.size();
  if (times == 0 || block.count[d] < 2)
    return parts.push_back(block);
  StoredBlock low = block;
  StoredBlock high = block;
  low.count[d] = 1 + static_cast<Index>(random()) % (block.count[d] - 1);
  high.start[d] += low.count[d];
  high.count[d] -= low.count[d];
  cut(low, times - 1, random, parts);
  cut(high, times - 1, random, parts);
}

bool covers_once(const std::vector<StoredBlock>& blocks) {
  const std::vector<Index>& shape = blocks.front().global_shape;
  std::vector<int> times(static_cast<std::size_t>(num_elements(shape)));
  for (const StoredBlock& block : blocks)
    for (Index element = 0; element < num_elements(shape); ++element) {
      bool inside = true;
      for (Index d = static_cast<Index>(shape.size()) - 1, left = element; d >= 0;
           left /= shape[static_cast<std::size_t>(d)], --d) {
        const auto i = static_cast<std::size_t>(d);
        const Index at = left % shape[i];
        inside = inside && at >= block.start[i] && at < block.start[i] + block.count[i];
      }
      times[static_cast<std::size_t>(element)] += inside ? 1 : 0;
    }
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
}

bool is_accepted(const std::vector<StoredBlock>& blocks) {
  try {
    check_coverage(blocks, "manifest.json");
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    return false;
  }
}

}  // namespace

// Against counting every element.
TEST(CheckpointCoverage, is_right_for_boxes_of_any_cut) {
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const std::vector<Index> shape = trial % 3 == 0   ? std::vector<Index>{11}
                                     : trial % 3 == 1 ? std::vector<Index>{5, 7}
                                                      : std::vector<Index>{3, 4, 5};
    std::vector<StoredBlock> blocks;
    cut(block_of(shape, std::vector<Index>(shape.size(), 0), shape), 4, random, blocks);
    std::shuffle(blocks.begin(), blocks.end(), random);
    ASSERT_TRUE(is_accepted(blocks));
    for (int changes = 0; changes < 2; ++changes) {
      StoredBlock& block = blocks[random() % blocks.size()];
      const std::size_t d = random() % shape.size();
      block.start[d] = static_cast<Index>(random()) % shape[d];
      block.count[d] = 1 + static_cast<Index>(random()) % (shape[d] - block.start[d]);
    }
    ASSERT_EQ(is_accepted(blocks), covers_once(blocks)) << "trial " << trial;
    refused += is_accepted(blocks) ? 0 : 1;
  }
  EXPECT_GT(refused, 400);
}

// All begin at the same row, so a comparison of each with each would take hours.
TEST(CheckpointCoverage, of_many_blocks_costs_little) {
  constexpr Index columns = 300'000;
  std::vector<StoredBlock> blocks;
  for (Index i = 0; i < columns; ++i)
    blocks.push_back(block_of({4, columns}, {0, i}, {4, 1}));
  EXPECT_TRUE(is_accepted(blocks));
  blocks[7].start[1] = 8;
  EXPECT_FALSE(is_accepted(blocks));
}

// 2^d corners of each block: more dimensions than tensors have are refused instead.
TEST(CheckpointCoverage, of_blocks_cut_along_many_dimensions_is_refused) {
  const std::vector<Index> shape(20, 2);
  std::vector<Index> half = shape;
  std::vector<StoredBlock> blocks;
  std::vector<Index> start(20, 0);
  for (std::size_t d = 0; d < shape.size(); ++d) {  // half of what is left, along one dimension after the other
    half[d] = 1;
    blocks.push_back(block_of(shape, start, half));
    start[d] = 1;
  }
  blocks.push_back(block_of(shape, start, half));
  expect_error(ExitCode::checkpoint, {"too many dimensions"}, [&] { check_coverage(blocks, "manifest.json"); });
}

// Two blocks that share bytes: a file could be read as often as there are blocks.
TEST(CheckpointCoverage, blocks_lie_apart_in_their_file) {
  const TemporaryDirectory directory;
  const Path path = save(directory.path(), 1);
  Manifest manifest = parse_manifest(read_bytes(path / "manifest.json"), path);
  manifest.blocks[1].extent.offset = manifest.blocks[0].extent.offset + 8;
  expect_error(ExitCode::checkpoint, {"share bytes"}, [&] { parse_manifest(to_text(manifest), path); });
}
