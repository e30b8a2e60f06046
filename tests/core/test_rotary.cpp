// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "core/ops/rotary.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

// Rows [Q | K | V] of a shape, of whose Q and K the first `size` channels of each head are rotated.
struct RotaryCase {
  OpShape shape;
  Index size;
  RotaryFrequencies frequencies;
  Values rows, gradients;

  RotaryCase(const OpShape& s, Index rotary_size)
      : shape(s),
        size(rotary_size),
        frequencies{rotary_frequencies({.size = rotary_size, .theta = 100}).of_pairs, 1.25},
        rows(random_values("rows", s.rows() * s.qkv_channels())),
        gradients(random_values("gradients", s.rows() * s.qkv_channels())) {}

  Index heads() const { return shape.heads + shape.kv_heads(); }
  Values plain(const Values& values, const std::function<Index(Index)>& position) const {
    return reference::rotary(values, shape.qkv_channels(), heads(), shape.head_size, frequencies.of_pairs,
                             frequencies.attention_factor, position);
  }
};

template <class T>
Values rotated(const RotaryCase& c, const Values& values, const RowPositions& positions, Index num_positions,
               bool forward) {
  const OpShape& s = c.shape;
  const auto rows = on_device<T>(values, s.rows(), s.qkv_channels());
  const auto table = undefined<State<T>>(num_positions, c.size);
  make_rotary_table<State<T>>(ExecSpace(), table, c.frequencies);
  if (forward)
    rotary_forward<T>(ExecSpace(), rows, c.heads(), s.head_size, table, positions);
  else
    rotary_backward<T>(ExecSpace(), rows, c.heads(), s.head_size, table, positions);
  return on_host(rows);
}

// All channels of even heads, and a part of them.
std::vector<RotaryCase> cases_of(const OpShape& s) {
  std::vector<RotaryCase> cases;
  const Index all = s.head_size / 2 * 2;
  if (all > 0)
    cases.emplace_back(s, all);
  if (const Index some = s.head_size / 4 * 2; some > 0 && some < all)
    cases.emplace_back(s, some);
  return cases;
}

std::vector<OpShape> rotary_shapes() {
  std::vector<OpShape> shapes = op_shapes();
  shapes.push_back({2, 7, 6, 64, 1, 2});
  shapes.push_back({1, 5, 4, 24, 1, 1});
  return shapes;
}

TEST(Rotary, forward_is_that_of_plain_loops) {
  const auto check = []<class T>(const OpShape& s) {
    for (const RotaryCase& c : cases_of(s)) {
      const Values expected = c.plain(rounded<T>(c.rows), [&](Index n) { return n % s.length; });
      EXPECT_TRUE(allclose(rotated<T>(c, c.rows, {.sequence_length = s.length}, s.length, true), expected, tolerance<T>,
                           {s.rows(), s.qkv_heads(), s.head_size}))
          << c.size;
    }
  };
  for (const OpShape& s : rotary_shapes()) {
    run_check<float>(check, s);
    run_check<double>(check, s);
    run_check<bfloat16>(check, s);
    run_check<float16>(check, s);
  }
}

TEST(Rotary, gradient_is_that_of_finite_differences) {
  for (const OpShape& s : rotary_shapes())
    for (const RotaryCase& c : cases_of(s)) {
      SCOPED_TRACE(to_text(s) + " R=" + std::to_string(c.size));
      const Values gradient = rotated<double>(c, c.gradients, {.sequence_length = s.length}, s.length, false);
      const auto loss = [&](const Values& v) {
        return dot(c.gradients, c.plain(v, [&](Index n) { return n % s.length; }));
      };
      EXPECT_TRUE(gradient_check(loss, c.rows, gradient, 24, 1e-8, {s.rows(), s.qkv_heads(), s.head_size}));
      EXPECT_TRUE(allclose(rotated<float>(c, c.gradients, {.sequence_length = s.length}, s.length, false), gradient,
                           1e-5, {s.rows(), s.qkv_heads(), s.head_size}));
      EXPECT_TRUE(allclose(rotated<bfloat16>(c, c.gradients, {.sequence_length = s.length}, s.length, false), gradient,
                           2 * tolerance<bfloat16>, {s.rows(), s.qkv_heads(), s.head_size}));
    }
}

TEST(Rotary, positions_begin_anywhere) {
  const OpShape s{2, 9, 3, 8, 1};
  const RotaryCase c(s, 8);
  const std::vector<int> documents = {0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 0};
  const RowPositions positions{.of_rows = on_device<int>(documents, s.rows())};
  EXPECT_TRUE(allclose(rotated<double>(c, c.rows, positions, 8, true),
                       c.plain(c.rows, [&](Index n) { return documents[static_cast<std::size_t>(n)]; }), 1e-12));
}

TEST(Rotary, scores_depend_on_the_distance) {
  const OpShape s{1, 1, 1, 16, 1};
  RotaryCase c(s, 16);
  c.frequencies.attention_factor = 1;
  const auto score = [&](Index query, Index key) {
    const auto at = [&](Index position) {
      return rotated<double>(c, c.rows, {.of_rows = on_device<int>(std::vector{static_cast<int>(position)}, 1)}, 2000,
                             true);
    };
    const Values q = at(query), k = at(key);
    double sum = 0;
    for (std::size_t i = 0; i < 16; ++i)
      sum += q[i] * k[16 + i];
    return sum;
  };
  EXPECT_NEAR(score(5, 2), score(1903, 1900), 1e-12);
  EXPECT_GT(std::abs(score(5, 2) - score(5, 3)), 1e-3);
}

TEST(Rotary, far_positions_keep_their_digits) {
  const RotaryFrequencies frequencies = rotary_frequencies({.size = 4});
  const auto table = undefined<float>(Index{100001}, Index{4});
  make_rotary_table<float>(ExecSpace(), table, frequencies);
  const Values row = on_host(Tensor<float, 1>(table.data() + 400000, 4));
  EXPECT_TRUE(allclose(row, {std::cos(1e5), std::cos(1e3), std::sin(1e5), std::sin(1e3)}, 1e-7));
}

}  // namespace
