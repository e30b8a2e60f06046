// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/types.hpp"

namespace espalier::test {

/// B sequences of T positions, NH heads of HS channels, V vocabulary entries; C = NH*HS, N = B*T. Of attention also NKV
/// heads of keys and values (0: NH) and a window of W keys (0: none); a row of [Q | K | V] has (NH + 2 NKV)*HS
/// channels.
struct OpShape {
  Index batch;
  Index length;
  Index heads;
  Index head_size;
  Index vocabulary;
  Index num_kv_heads = 0;
  Index window = 0;

  Index rows() const { return batch * length; }
  Index channels() const { return heads * head_size; }
  Index kv_heads() const { return num_kv_heads == 0 ? heads : num_kv_heads; }
  Index qkv_heads() const { return heads + 2 * kv_heads(); }
  Index qkv_channels() const { return qkv_heads() * head_size; }
};

inline std::string to_text(const OpShape& s) {
  return "B=" + std::to_string(s.batch) + " T=" + std::to_string(s.length) + " NH=" + std::to_string(s.heads) +
         " HS=" + std::to_string(s.head_size) + " V=" + std::to_string(s.vocabulary) +
         (s.num_kv_heads > 0 ? " NKV=" + std::to_string(s.num_kv_heads) : "") +
         (s.window > 0 ? " W=" + std::to_string(s.window) : "");
}

/// The one table of shapes of all op tests: single elements, odd sizes, and sizes around the tiles (attention: 64
/// queries, 256 keys; rows: 32 lanes).
inline const std::vector<OpShape>& op_shapes() {
  static const std::vector<OpShape> shapes = {
      {1, 1, 1, 1, 1},    {1, 1, 1, 8, 2},    {3, 1, 2, 5, 7},     {2, 5, 2, 4, 11},    {1, 63, 1, 16, 31},
      {2, 64, 2, 32, 32}, {1, 65, 3, 11, 33}, {1, 257, 1, 80, 65}, {2, 300, 1, 7, 130}, {1, 321, 2, 3, 64},
  };
  return shapes;
}

/// Attention whose heads share keys and values, whose queries see a window of the keys, or both: windows of one key,
/// shorter and longer than a tile, as long as the sequence and longer.
inline std::vector<OpShape> grouped_and_windowed_shapes() {
  std::vector<OpShape> shapes = {
      {1, 1, 2, 3, 1, 1},         {2, 5, 4, 4, 1, 2},        {1, 65, 6, 11, 1, 2},     {2, 257, 3, 8, 1, 1},
      {1, 9, 2, 4, 1, 0, 1},      {2, 33, 2, 5, 1, 0, 7},    {1, 300, 1, 4, 1, 0, 64}, {1, 321, 2, 3, 1, 0, 65},
      {1, 520, 1, 4, 1, 0, 129},  {1, 700, 1, 3, 1, 0, 300}, {1, 70, 1, 4, 1, 0, 70},  {1, 70, 1, 4, 1, 0, 1000},
      {2, 300, 4, 5, 1, 2, 31},   {1, 640, 3, 4, 1, 1, 256}, {1, 1, 4, 2, 1, 1, 1},    {2, 130, 9, 16, 1, 3, 100},
      {2, 130, 3, 16, 1, 0, 100},
  };
  return shapes;
}

template <class T, class Check>
void run_check(const Check& check, const OpShape& shape) {
  SCOPED_TRACE(std::string(to_string(scalar_type_of<T>())) + " " + to_text(shape));
  check.template operator()<T>(shape);
}

/// check.template operator()<T>(shape) for each compute type and each shape of the table.
template <class Check>
void for_each_shape_and_type(const Check& check) {
  for (const OpShape& shape : op_shapes()) {
    run_check<float>(check, shape);
    run_check<double>(check, shape);
    run_check<bfloat16>(check, shape);
    run_check<float16>(check, shape);
    if (testing::Test::HasFatalFailure())
      return;
  }
}

}  // namespace espalier::test
