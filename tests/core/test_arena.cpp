// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/arena.hpp"

using namespace espalier;

namespace {

struct Layout {
  Tensor<float, 2> a;
  Tensor<double, 1> b;
  Tensor<TokenId, 1> c;
  static Layout take(Arena& arena) {
    return {arena.take<float>(3, 5), arena.take<double>(1), arena.take<TokenId>(100)};
  }
};

TEST(Arena, measures_what_it_hands_out) {
  Arena measure;
  EXPECT_EQ(Layout::take(measure).a.data(), nullptr);
  EXPECT_EQ(measure.used_bytes(), 256 + 256 + 512);

  const auto memory = allocate<std::byte>(Category::other, "arena", measure.used_bytes());
  Arena arena(memory.data(), measure.used_bytes());
  const Layout layout = Layout::take(arena);
  EXPECT_EQ(arena.used_bytes(), measure.used_bytes());
  const std::byte* const begin = memory.data();
  EXPECT_EQ(reinterpret_cast<std::byte*>(layout.a.data()), begin);
  EXPECT_EQ(reinterpret_cast<std::byte*>(layout.b.data()), begin + 256);
  EXPECT_EQ(reinterpret_cast<std::byte*>(layout.c.data()), begin + 512);
  EXPECT_EQ(layout.a.extent(0), 3u);
  EXPECT_EQ(layout.a.extent(1), 5u);
}

TEST(Arena, refuses_more_than_was_measured) {
  const auto memory = allocate<std::byte>(Category::other, "arena", 256);
  Arena arena(memory.data(), 256);
  EXPECT_NO_THROW(arena.take<float>(64));
  EXPECT_THROW(arena.take<char>(1), std::logic_error);
}

}  // namespace
