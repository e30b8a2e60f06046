// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/parameter.hpp"
#include "core/shard_boxes.hpp"

using namespace espalier;

namespace {

Parameter parameter_of(const std::vector<Index>& shape, Shard shard) {
  ParameterStore<float> store;
  const auto id = store.declare({.name = "t", .shape = shape, .shard = shard});
  store.lay_out();
  return store.parameter(id);
}

// The logical index of each element of a box, in row-major order.
std::vector<Index> logical_indices(const ShardBox& box, const std::vector<Index>& shape) {
  Index size = 1;
  for (const Index count : box.count)
    size *= count;
  std::vector<Index> indices;
  for (Index i = 0; i < size; ++i) {
    Index rest = i;
    Index logical = 0;
    Index stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      logical += (box.start[d] + rest % box.count[d]) * stride;
      rest /= box.count[d];
      stride *= shape[d];
    }
    indices.push_back(logical);
  }
  return indices;
}

// Every run of local elements, cut at rows or not, against global_index() element by element.
void expect_boxes_of_every_run(const std::vector<Index>& shape) {
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim)
    for (Index parts = 1; parts <= shape[static_cast<std::size_t>(dim)]; ++parts)
      for (Index part = 0; part < parts; ++part) {
        const Parameter parameter = parameter_of(shape, {dim, part, parts});
        for (Index begin = 0; begin <= parameter.size; ++begin)
          for (Index end = begin; end <= parameter.size; ++end) {
            const std::vector<ShardBox> boxes = shard_boxes(parameter, {begin, end});
            ASSERT_LE(boxes.size(), 2 * shape.size() - 1);
            Index local = begin;
            for (const ShardBox& box : boxes) {
              ASSERT_EQ(box.offset, local) << "boxes follow one another in the shard";
              for (const Index logical : logical_indices(box, shape))
                ASSERT_EQ(logical, global_index(parameter.spec, local++));
            }
            ASSERT_EQ(local, end);
          }
      }
}

TEST(ShardBoxes, equal_global_index_for_every_run_of_every_shard) {
  expect_boxes_of_every_run({7});
  expect_boxes_of_every_run({5, 4});
  expect_boxes_of_every_run({3, 4, 2});
  expect_boxes_of_every_run({2, 1, 3, 2});
}

TEST(ShardBoxes, a_whole_shard_is_one_box) {
  const Parameter qkv = parameter_of({3, 8, 8}, {1, 2, 3});  // rows 6 and 7 of Q, K and V
  const std::vector<ShardBox> boxes = shard_boxes(qkv, {0, qkv.size});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].start, (std::vector<Index>{0, 6, 0}));
  EXPECT_EQ(boxes[0].count, (std::vector<Index>{3, 2, 8}));
}

TEST(ShardBoxes, rows_of_q_k_and_v_are_three_boxes) {
  const Parameter qkv = parameter_of({3, 8, 8}, {1, 1, 2});  // rows 4 to 7 of Q, K and V: 12 local rows of 8
  const std::vector<ShardBox> boxes = shard_boxes(qkv, {3 * 8, 10 * 8});
  ASSERT_EQ(boxes.size(), 3u);
  EXPECT_EQ(boxes[0].start, (std::vector<Index>{0, 7, 0}));
  EXPECT_EQ(boxes[0].count, (std::vector<Index>{1, 1, 8}));
  EXPECT_EQ(boxes[1].start, (std::vector<Index>{1, 4, 0}));
  EXPECT_EQ(boxes[1].count, (std::vector<Index>{1, 4, 8}));
  EXPECT_EQ(boxes[2].start, (std::vector<Index>{2, 4, 0}));
  EXPECT_EQ(boxes[2].count, (std::vector<Index>{1, 2, 8}));
  EXPECT_EQ(boxes[2].offset, 8 * 8);
}

TEST(ShardBoxes, exceed_2_31) {
  const Parameter table = parameter_of({Index{1} << 20, Index{1} << 20}, {0, 3, 4});
  const std::vector<ShardBox> boxes = shard_boxes(table, {(Index{1} << 38) - 5, Index{1} << 38});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].start, (std::vector<Index>{(Index{1} << 20) - 1, (Index{1} << 20) - 5}));
}

TEST(ShardBoxes, nothing_has_no_box_and_more_than_there_is_is_refused) {
  const Parameter row = parameter_of({8}, {0, 0, 2});
  EXPECT_TRUE(shard_boxes(row, {2, 2}).empty());
  EXPECT_THROW(shard_boxes(row, {2, 5}), std::logic_error);
}

}  // namespace
