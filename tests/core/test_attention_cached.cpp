// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cached.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

// The last rows of a sequence, whose keys and values are stored before, against attention over the whole sequence.
template <class T>
void compare(OpShape s, Index new_rows) {
  s.batch = 1;
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()) + ", new rows: " + std::to_string(new_rows));
  const AttentionShape shape{1, s.length, s.heads, s.head_size, s.num_kv_heads, s.window};
  const Values qkv = random_values("qkv", s.length * s.qkv_channels(), 2);
  const Values wanted = reference::attention(rounded<T>(qkv), s);
  const Index first = s.length - new_rows, channels = s.channels();
  const auto rows = on_device<T>(qkv, s.length, s.qkv_channels());
  const auto some = [&](Index begin, Index end) -> Tensor<T, 2> {
    return Kokkos::subview(rows, std::pair<Index, Index>(begin, end), Kokkos::ALL);
  };
  const auto cache = undefined<T>(s.length + 3, 2 * s.kv_heads() * s.head_size);
  const auto out = undefined<T>(new_rows, channels);
  const ExecSpace exec;
  store_keys_and_values<T>(exec, cache, some(0, first), 0, shape);
  store_keys_and_values<T>(exec, cache, some(first, s.length), first, shape);
  attention_cached<T>(exec, out, some(first, s.length), cache, first, shape);
  EXPECT_TRUE(allclose(on_host(out), {wanted.begin() + first * channels, wanted.end()}, 4 * tolerance<T>,
                       {new_rows, s.heads, s.head_size}));
}

TEST(AttentionCached, IsThatOfTheWholeSequence) {
  std::vector<OpShape> shapes = op_shapes();
  for (const OpShape& s : grouped_and_windowed_shapes())
    shapes.push_back(s);
  for (const Index length : {63, 64, 65, 129})  // around the tiles of keys
    shapes.push_back({1, length, 2, 8, 1, 1, length / 2});
  for (const OpShape& s : shapes)
    for (const Index new_rows : {Index{1}, std::min<Index>(s.length, 3), s.length}) {
      compare<float>(s, new_rows);
      compare<double>(s, new_rows);
      compare<bfloat16>(s, new_rows);
    }
}

}  // namespace
