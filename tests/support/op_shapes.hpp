// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/types.hpp"

namespace espalier::test {

/// B sequences of T positions, NH heads of HS channels, V vocabulary entries; C = NH*HS, N = B*T.
struct OpShape {
  Index batch;
  Index length;
  Index heads;
  Index head_size;
  Index vocabulary;

  Index rows() const { return batch * length; }
  Index channels() const { return heads * head_size; }
};

inline std::string to_text(const OpShape& s) {
  return "B=" + std::to_string(s.batch) + " T=" + std::to_string(s.length) + " NH=" + std::to_string(s.heads) +
         " HS=" + std::to_string(s.head_size) + " V=" + std::to_string(s.vocabulary);
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
