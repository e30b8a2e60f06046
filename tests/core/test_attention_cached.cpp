// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cached.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Place {
  int sequence, position;
};

// Rows of qkv in the order given, each of one of the sequences, in a cache with room for more.
template <class T>
struct CachedCase {
  AttentionShape shape;
  Index sequences;
  ExecSpace exec;
  Tensor<T, 3> cache;

  CachedCase(const OpShape& s, Index num_sequences)
      : shape{1, s.length, s.heads, s.head_size, s.kv_heads(), s.window},
        sequences(num_sequences),
        cache("espalier::other::cache", num_sequences, s.length + 3, 2 * s.kv_heads() * s.head_size) {
    Kokkos::deep_copy(cache, static_cast<T>(std::nan("")));  // what is not stored must not be read
  }

  Values attend(const std::vector<Place>& places, const std::function<Values(Place)>& row_of) const {
    std::vector<int> of, at;
    Values qkv;
    for (const Place& place : places) {
      of.push_back(place.sequence);
      at.push_back(place.position);
      const Values row = row_of(place);
      qkv.insert(qkv.end(), row.begin(), row.end());
    }
    const auto rows = std::ssize(places);
    const auto device = on_device<T>(qkv, rows, shape.qkv_columns());
    const CachedRows cached{on_device<int>(of, rows), on_device<int>(at, rows)};
    const auto out = undefined<T>(rows, shape.num_heads * shape.head_size);
    attention_cached<T>(exec, out, device, cache, cached, shape);
    return on_host(out);
  }
};

// Sequences of different lengths grow together, each row against attention over its whole sequence: the first ones
// take in a prompt, then each a token at a time, until it has no more.
template <class T>
void compare(const OpShape& s) {
  SCOPED_TRACE(to_text(s) + " " + to_string(scalar_type_of<T>()));
  const Index num_sequences = 3;
  const Values qkv = random_values("qkv", num_sequences * s.length * s.qkv_channels(), 2);
  OpShape all = s;
  all.batch = num_sequences;
  const Values wanted = reference::attention(rounded<T>(qkv), all);
  const auto part = [&](const Values& values, Place place, Index width) {
    const auto first = values.begin() + (place.sequence * s.length + place.position) * width;
    return Values(first, first + width);
  };
  const auto row_of = [&](Place place) { return part(qkv, place, s.qkv_channels()); };
  const CachedCase<T> test(s, num_sequences);
  const auto expect = [&](const std::vector<Place>& places) {
    Values rows;
    for (const Place& place : places) {
      const Values row = part(wanted, place, s.channels());
      rows.insert(rows.end(), row.begin(), row.end());
    }
    const Values got = test.attend(places, row_of);
    EXPECT_TRUE(allclose(got, rows, 4 * tolerance<T>, {std::ssize(places), s.heads, s.head_size}));
    if (exec_is_host && !places.empty()) {  // the same bits without the others
      const Values alone = test.attend({places.back()}, row_of);
      EXPECT_TRUE(std::equal(alone.rbegin(), alone.rend(), got.rbegin()));
    }
  };
  const std::vector<Index> prompts = {s.length, s.length / 2, std::min<Index>(s.length, 1)};
  for (int i = 0; i < num_sequences; ++i) {
    std::vector<Place> prompt;
    for (int t = 0; t < prompts[static_cast<std::size_t>(i)]; ++t)
      prompt.push_back({i, t});
    if (!prompt.empty())
      expect(prompt);
  }
  for (Index step = 0; step < std::min<Index>(s.length, 9); ++step) {
    std::vector<Place> grown;
    for (const int i : {2, 1, 0})
      if (const Index t = prompts[static_cast<std::size_t>(i)] + step; t < s.length)
        grown.push_back({i, static_cast<int>(t)});
    if (!grown.empty())
      expect(grown);
  }
}

TEST(AttentionCached, OfSequencesThatGrowTogetherIsThatOfEach) {
  std::vector<OpShape> shapes = op_shapes();
  for (const OpShape& s : grouped_and_windowed_shapes())
    shapes.push_back(s);
  for (const Index length : {63, 64, 65, 129})  // around the tiles of keys
    shapes.push_back({1, length, 2, 8, 1, 1, length / 2});
  for (const OpShape& s : shapes) {
    compare<float>(s);
    compare<double>(s);
    compare<bfloat16>(s);
  }
}

}  // namespace
