// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "core/flat_storage.hpp"
#include "core/parameter.hpp"
#include "tests/support/tensors.hpp"

namespace espalier {
namespace {

using namespace test;
using Ranges = std::vector<IndexRange>;

// Elements 0 to 99: a table, three layers of 20, a norm. This rank owns the middle of the array and the end of a layer.
const FlatSharding sharding{
    .owned = {{5, 12}, {35, 52}, {68, 70}}, .units = {{10, 30}, {30, 50}, {50, 70}}, .buffers = 2};

TEST(FlatStorage, HoldsWhatIsInNoUnitAndItsSlices) {
  EXPECT_EQ(sharding.held(100), (Ranges{{0, 10}, {70, 100}, {10, 12}, {35, 50}, {50, 52}, {68, 70}}));
  EXPECT_EQ(FlatSharding{}.held(100), (Ranges{{0, 100}}));
  EXPECT_EQ((FlatSharding{.owned = {}, .units = {{0, 100}}, .buffers = 1}.held(100)), Ranges{})
      << "more ranks than rows";
}

TEST(FlatStorage, EachElementHasAPlaceOfItsOwn) {
  const FlatStorage<double> storage(Category::weights, 100, sharding);
  ASSERT_EQ(storage.values().extent(0), 10 + 30 + 2 + 15 + 2 + 2U);
  std::set<Index> places;
  for (const IndexRange& range : storage.held())
    for (Index i = range.begin; i < range.end; ++i)
      EXPECT_TRUE(places.insert(storage.offset_of(i)).second) << i;
  EXPECT_EQ(*places.rbegin() + 1, static_cast<Index>(storage.values().extent(0)));
  EXPECT_EQ(storage.data(5), storage.values().data() + 5) << "a table is read where it is held";
  EXPECT_EQ(storage.data(99), storage.values().data() + 39);
}

TEST(FlatStorage, UnitsTakeTurnsInBuffers) {
  const FlatStorage<float> storage(Category::weights, 100, sharding);
  EXPECT_EQ(storage.unit_of(9), -1);
  EXPECT_EQ(storage.unit_of(10), 0);
  EXPECT_EQ(storage.unit_of(49), 1);
  EXPECT_EQ(storage.unit_of(69), 2);
  EXPECT_EQ(storage.unit_of(70), -1);
  EXPECT_EQ(storage.data(10), storage.data(50)) << "units 0 and 2";
  EXPECT_GE(storage.data(30) - storage.data(10), 20) << "units 0 and 1 lie side by side";
  EXPECT_EQ(storage.data(69) - storage.data(50), 19) << "a unit is contiguous, owned or not";
}

// The initial values do not depend on who holds them.
TEST(FlatStorage, AShardHasTheInitialValuesOfTheWhole) {
  const auto declare = [](ParameterStore<float>& store) {
    for (int block = 0; block < 4; ++block)
      store.declare({.name = "h." + std::to_string(block), .shape = {13, 7}, .block = block, .init_std = 1});
    store.lay_out();
  };
  ParameterStore<float> whole, shard;
  declare(whole);
  declare(shard);
  whole.allocate();
  Ranges units;
  for (const Segment& segment : shard.segments())
    if (segment.block == 1 || segment.block == 2)
      units.push_back({segment.offset, shard.segments()[units.size() + 2].offset});
  const IndexRange slice{units[0].begin + 11, units[1].begin + 30};
  shard.allocate({{slice}, units, 1}, {{slice}, units, 2});
  whole.initialize(ExecSpace(), 3);
  shard.initialize(ExecSpace(), 3);
  Kokkos::fence();
  const Values all = on_host(whole.flat_weights());
  const Values held = on_host(shard.flat_weights());
  for (const IndexRange& range : shard.weights().held())
    for (Index i = range.begin; i < range.end; ++i)
      ASSERT_EQ(held[static_cast<std::size_t>(shard.weights().offset_of(i))], all[static_cast<std::size_t>(i)]) << i;
}

}  // namespace
}  // namespace espalier
