// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "core/parameter.hpp"
#include "tests/support/allclose.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

TEST(ParameterStore, orders_segments_by_chunk_block_group_and_decay) {
  ParameterStore<float> store;
  const auto late = store.declare({.name = "late", .shape = {3}, .chunk = 1, .block = 0});
  const auto bias = store.declare({.name = "bias", .shape = {5}, .block = 1, .weight_decay = false});
  const auto matrix = store.declare({.name = "matrix", .shape = {7, 5}, .block = 1});
  const auto table = store.declare({.name = "table", .shape = {11, 2}, .tied = true});
  const auto second = store.declare({.name = "second", .shape = {2, 2}, .block = 1});
  const auto first = store.declare({.name = "first", .shape = {13}});
  store.allocate();

  std::vector<std::string> names;
  for (const Parameter& parameter : store.parameters())
    names.push_back(parameter.spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"table", "first", "matrix", "second", "bias", "late"}));
  ASSERT_EQ(store.segments().size(), 5u) << "matrix and second share one";
  for (const auto& [id, name] : {std::pair(late, "late"),
                                 {bias, "bias"},
                                 {matrix, "matrix"},
                                 {table, "table"},
                                 {second, "second"},
                                 {first, "first"}})
    EXPECT_EQ(store.parameter(id).spec.name, name) << "handles stay valid";
}

TEST(ParameterStore, aligns_and_covers_the_flat_arrays) {
  ParameterStore<float> store;
  for (int block = 0; block < 4; ++block)
    for (const Index size : {1, 63, 64, 65, 300})
      store.declare({.name = std::to_string(block) + "." + std::to_string(size),
                     .shape = {size},
                     .block = block,
                     .weight_decay = size % 2 == 0});
  store.allocate();
  Index end = 0;
  for (const Parameter& parameter : store.parameters()) {
    EXPECT_GE(parameter.offset, end) << parameter.spec.name << " overlaps the one before";
    EXPECT_EQ(parameter.offset * static_cast<Index>(sizeof(float)) % 256, 0);
    end = parameter.offset + parameter.size;
  }
  EXPECT_LE(end, store.flat_size());
  Index segment_end = 0;
  for (const Segment& segment : store.segments()) {
    EXPECT_GE(segment.offset, segment_end);
    EXPECT_EQ(segment.offset % 256, 0);
    segment_end = segment.offset + segment.size;
  }
  EXPECT_LE(segment_end, store.flat_size());
  EXPECT_EQ(static_cast<Index>(store.flat_weights().extent(0)), store.flat_size());
  EXPECT_EQ(static_cast<Index>(store.flat_gradients().extent(0)), store.flat_size());
}

TEST(ParameterStore, ranges_share_what_lies_in_both) {
  EXPECT_EQ(intersection({0, 5}, {3, 9}), (IndexRange{3, 5}));
  EXPECT_EQ(intersection({3, 9}, {4, 5}), (IndexRange{4, 5}));
  EXPECT_EQ(intersection({0, 5}, {7, 9}).size(), 0);
}

TEST(ParameterStore, refuses_what_does_not_fit) {
  ParameterStore<float> store;
  EXPECT_THROW(store.declare({.name = "short", .shape = {1, 2}, .shard = {0, 0, 2}}), std::logic_error);
  const auto id = store.declare({.name = "matrix", .shape = {4, 3}});
  EXPECT_THROW(store.weight(id, 4, 3), std::logic_error) << "before allocate()";
  store.allocate();
  EXPECT_NO_THROW(store.weight(id, 4, 3));
  EXPECT_NO_THROW(store.gradient(id, 12));
  EXPECT_THROW(store.weight(id, 4, 4), std::logic_error);
  EXPECT_THROW(store.declare({.name = "late", .shape = {1}}), std::logic_error);
}

// Writes each local element's global index where it belongs: every index once.
TEST(ParameterStore, global_index_covers_the_tensor_once) {
  const std::vector<Index> shape = {4, 6, 10};
  for (int dim = 0; dim < 3; ++dim)
    for (const Index parts : {1, 2, 3, 4}) {  // 3 and 4 do not divide all of the extents
      const Index extent = shape[static_cast<std::size_t>(dim)];
      std::set<Index> seen;
      for (Index part = 0; part < parts; ++part) {
        const ParameterSpec spec{.name = "t", .shape = shape, .shard = {dim, part, parts}};
        const IndexRange ours = spec.shard.range(extent);
        EXPECT_NEAR(static_cast<double>(ours.size()), static_cast<double>(extent) / static_cast<double>(parts), 1);
        Index before = -1;
        for (Index local = 0; local < 240 / extent * ours.size(); ++local) {
          const Index global = global_index(spec, local);
          EXPECT_GT(global, before) << "order is kept";
          before = global;
          const Index coordinate = dim == 0 ? global / 60 : dim == 1 ? global / 10 % 6 : global % 10;
          EXPECT_TRUE(coordinate >= ours.begin && coordinate < ours.end) << "lies in our part";
          seen.insert(global);
        }
      }
      EXPECT_EQ(seen.size(), 240u);
      EXPECT_EQ(*seen.rbegin(), 239);
    }
}

TEST(ParameterStore, global_index_exceeds_2_31) {
  const ParameterSpec spec{.name = "t", .shape = {Index{1} << 20, Index{1} << 20}, .shard = {0, 3, 4}};
  EXPECT_EQ(global_index(spec, (Index{1} << 38) - 1), (Index{1} << 40) - 1);
}

template <class T>
Values initialized(int dim, Index parts) {
  Values whole(static_cast<std::size_t>(12 * 8));
  for (Index part = 0; part < parts; ++part) {
    ParameterStore<T> store;
    store.declare({.name = "other", .shape = {part + 1}, .init_std = 1});  // shifts the offset
    const auto id = store.declare(
        {.name = "tensor", .shape = {12, 8}, .shard = {dim, part, parts}, .init_mean = 0.5, .init_std = 0.02});
    store.allocate();
    store.initialize(ExecSpace(), 17);
    const Parameter& parameter = store.parameter(id);
    const Values local = on_host(store.weight(id, parameter.size));
    for (Index i = 0; i < parameter.size; ++i)
      whole[static_cast<std::size_t>(global_index(parameter.spec, i))] = local[static_cast<std::size_t>(i)];
  }
  return whole;
}

TEST(ParameterStore, initial_values_do_not_depend_on_the_shards) {
  const Values whole = initialized<float>(0, 1);
  for (const int dim : {0, 1})
    for (const Index parts : {2, 4})
      EXPECT_TRUE(allclose(initialized<float>(dim, parts), whole, 0, {12, 8})) << dim << " in " << parts;
  EXPECT_TRUE(allclose(whole, initialized<double>(0, 1), 1e-6)) << "nor, up to rounding, on the precision";
  EXPECT_GT(whole[0] - 0.5, -0.1);
  EXPECT_LT(whole[0] - 0.5, 0.1);
}

// Q, K and V: each cut by rows, whose initial values are those of one tensor.
TEST(ParameterStore, joined_parameters_are_one_matrix) {
  constexpr Index rows = 6, columns = 5;
  ParameterStore<double> whole;
  const auto all = whole.declare({.name = "qkv", .shape = {3, rows, columns}, .init_std = 1});
  whole.allocate();
  whole.initialize(ExecSpace(), 3);
  const Values wanted = on_host(whole.weight(all, 3 * rows * columns));
  for (const Index part : {0, 1}) {
    ParameterStore<double> store;
    std::vector<int> ids;
    for (Index i = 0; i < 3; ++i) {
      ids.push_back(store.declare({.name = "of " + std::to_string(i),
                                   .shape = {rows, columns},
                                   .shard = {0, part, 2},
                                   .joins_previous = i > 0,
                                   .init_std = 1,
                                   .init_stream = "qkv",
                                   .init_first = i * rows * columns}));
      store.declare({.name = "bias of " + std::to_string(i), .shape = {rows}, .weight_decay = false});
    }
    const auto apart = store.declare({.name = "another", .shape = {3}});
    store.allocate();
    store.initialize(ExecSpace(), 3);
    constexpr Index half = rows / 2;
    const Values joined = on_host(store.joined_weight(ids.front(), ids.back(), 3 * half, columns));
    for (Index i = 0; i < 3; ++i)
      for (Index r = 0; r < half; ++r)
        for (Index c = 0; c < columns; ++c)
          EXPECT_EQ(joined[static_cast<std::size_t>((i * half + r) * columns + c)],
                    wanted[static_cast<std::size_t>((i * rows + part * half + r) * columns + c)]);
    EXPECT_EQ(store.joined_gradient(ids.front(), ids.back(), 3 * half, columns).data(),
              store.gradient(ids.front(), half * columns).data());
    EXPECT_EQ(store.parameter(apart).offset % 64, 0) << "what joins nothing begins at its own alignment";
    EXPECT_THROW(store.joined_weight(ids.front(), apart, 3 * half * columns + 3), std::logic_error);
  }
}

TEST(ParameterStore, a_parameter_joins_one_of_its_segment) {
  ParameterStore<float> store;
  store.declare({.name = "weight", .shape = {4}});
  store.declare({.name = "bias", .shape = {4}, .weight_decay = false, .joins_previous = true});
  EXPECT_THROW(store.lay_out(), std::logic_error);
}

TEST(ParameterStore, starts_at_zero) {
  ParameterStore<double> store;
  store.declare({.name = "t", .shape = {100}, .init_std = 1});
  store.allocate();
  const Values zeros(static_cast<std::size_t>(store.flat_size()), 0.0);
  EXPECT_TRUE(allclose(on_host(store.flat_weights()), zeros, 0));
  EXPECT_TRUE(allclose(on_host(store.flat_gradients()), zeros, 0));
  store.initialize(ExecSpace(), 1);
  const Values weights = on_host(store.flat_weights());
  for (std::size_t i = 100; i < weights.size(); ++i)
    ASSERT_EQ(weights[i], 0) << "padding stays zero";
}

}  // namespace
