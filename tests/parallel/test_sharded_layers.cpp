// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// ZeRO-2 and -3: layers of which a rank keeps slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/kokkos_compat.hpp"
#include "parallel/gradient_reducer.hpp"
#include "parallel/unit_uses.hpp"
#include "parallel/weight_gatherer.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

constexpr int num_layers = 5;

/// A table, layers with odd rows, a norm behind them.
template <class T>
ParameterStore<T> layered_parameters() {
  ParameterStore<T> parameters;
  parameters.declare({.name = "tokens", .shape = {97, 23}, .block = 0, .init_std = 1});
  for (int block = 1; block <= num_layers; ++block) {
    const std::string name = "h." + std::to_string(block);
    parameters.declare({.name = name + ".up", .shape = {37, 19}, .block = block, .init_std = 1});
    parameters.declare({.name = name + ".bias", .shape = {53}, .block = block, .weight_decay = false, .init_std = 1});
  }
  parameters.declare({.name = "norm", .shape = {19}, .block = num_layers + 1, .weight_decay = false, .init_std = 1});
  parameters.lay_out();
  return parameters;
}

/// One of the ranks that share the layers.
template <class T>
struct Sharded {
  explicit Sharded(int buffers) : parameters(layered_parameters<T>()) {
    const auto communicators = ReductionCommunicators::all(world());
    plan = plan_reduction(parameters.segments(), parameters.parameters(), communicators.ranks(), options,
                          sizeof(State<T>));
    parameters.allocate(plan.weights(3, buffers), plan.gradients(buffers));
    parameters.initialize(ExecSpace(), 5);
  }
  /// Segments of a layer, that is the buckets' parts of its unit.
  void mark(GradientReducer<State<T>>& reducer, int unit) const {
    for (std::size_t s = 0; s < parameters.segments().size(); ++s)
      if (parameters.segments()[s].block == unit + 1)
        reducer.mark_ready(static_cast<int>(s));
  }

  ReducerOptions options{
      .bucket_bytes = 400 * 4, .buckets_in_flight = 2, .zero_stage = 3, .layers_of_chunk = {num_layers}};
  ReductionPlan plan;
  ParameterStore<T> parameters;
};

/// Forward and backward of so many micro-batches.
std::vector<int> uses(int microbatches) {
  PipelineSchedule list;
  for (int m = 0; m < microbatches; ++m)
    for (const OperationKind kind : {OperationKind::forward, OperationKind::backward})
      list.push_back({.kind = kind, .microbatch = m});
  return unit_uses(list, {num_layers});
}

TEST(ShardedLayers, EachIsUsedInTheOrderOfTheList) {
  EXPECT_EQ(uses(1), (std::vector<int>{0, 1, 2, 3, 4, 4, 3, 2, 1, 0}));
  PipelineSchedule two_chunks;
  for (const auto& [kind, chunk] : {std::pair{OperationKind::forward, 1},
                                    {OperationKind::send_activations, 1},
                                    {OperationKind::backward_input, 0},
                                    {OperationKind::backward_weight, 0}})
    two_chunks.push_back({.kind = kind, .chunk = chunk});
  EXPECT_EQ(unit_uses(two_chunks, {2, 3}), (std::vector<int>{2, 3, 4, 1, 0, 1, 0}));
  EXPECT_EQ(unit_at({2, 3}, 1, 0), -1) << "the embedding";
  EXPECT_EQ(unit_at({2, 3}, 1, 3), 4);
  EXPECT_EQ(unit_at({2, 3}, 1, 4), -1) << "the head";
}

TEST(ShardedLayers, ALayerIsGatheredAgainWhereItsBufferWasTaken) {
  const auto gathers = [](int microbatches, int buffers) {
    return gathers_of_units(unit_actions(uses(microbatches), buffers), num_layers);
  };
  EXPECT_EQ(gathers(1, 2), (std::vector<int>{2, 2, 2, 1, 1})) << "the last two are still there";
  EXPECT_EQ(gathers(3, 5), std::vector<int>(5, 1));
  EXPECT_EQ(gathers(2, 1), (std::vector<int>{3, 4, 4, 4, 2}));
}

TEST(ShardedLayers, ActionsAreProven) {
  for (const int buffers : {1, 2, 3, num_layers})
    for (const int microbatches : {1, 2, 3})
      EXPECT_EQ(check_unit_actions(unit_actions(uses(microbatches), buffers), uses(microbatches), buffers), "");

  using Kind = UnitAction::Kind;
  const std::vector<UnitAction> two = unit_actions({0, 1, 2}, 2);
  const std::vector<UnitAction> wanted = {{Kind::gather, 0},  {Kind::use, 0}, {Kind::gather, 1},
                                          {Kind::release, 0}, {Kind::use, 1}, {Kind::gather, 2},
                                          {Kind::release, 1}, {Kind::use, 2}, {Kind::release, 2}};
  ASSERT_EQ(two, wanted);
  const auto problem_of = [](const std::vector<UnitAction>& actions) {
    return check_unit_actions(actions, {0, 1, 2}, 2);
  };
  auto late = two;
  std::swap(late[2], late[4]);
  EXPECT_EQ(problem_of(late), "use 1 (action 2) comes before its gather");
  auto early = two;  // a layer that is in use is overwritten
  std::rotate(early.begin() + 2, early.begin() + 5, early.begin() + 6);
  EXPECT_EQ(problem_of(early), "gather 2 (action 2) overwrites unit 0, which is in use");
  auto overwritten = two;  // by the layer that is gathered too soon behind it
  overwritten.insert(overwritten.begin() + 4, {Kind::gather, 3});
  EXPECT_EQ(problem_of(overwritten), "use 1 (action 5) finds unit 3 in its buffer");
  auto left_out = two;
  left_out.erase(left_out.begin() + 4);
  EXPECT_EQ(problem_of(left_out), "release 1 (action 5) is of a unit that is not in use");
  EXPECT_EQ(problem_of({two.begin(), two.begin() + 7}), "unit 2 is not used at the end");
}

template <class T>
class ShardedLayersOf : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(ShardedLayersOf, Types);

TYPED_TEST(ShardedLayersOf, GatheredWeightsAreThoseOfTheWhole) {
  auto whole = layered_parameters<TypeParam>();
  whole.allocate();
  whole.initialize(ExecSpace(), 5);
  Kokkos::fence();
  for (const int buffers : {1, 2, 3, num_layers}) {
    const Sharded<TypeParam> sharded(buffers);
    const FlatStorage<TypeParam>& weights = sharded.parameters.weights();
    WeightGatherer<TypeParam> gatherer(ExecSpace(), ReductionCommunicators::all(world()), weights, sharded.plan);
    for (int pass = 0; pass < 3; ++pass) {
      Kokkos::deep_copy(weights.buffers(), static_cast<TypeParam>(-1));  // a use before its gather is seen
      const std::uint64_t before = gatherer.bytes_sent();
      gatherer.begin(uses(2));
      for (const int unit : uses(2)) {
        gatherer.use(unit);
        const IndexRange range = sharded.plan.units[static_cast<std::size_t>(unit)];
        const auto got = to_vector(Tensor<TypeParam, 1>(weights.data(range.begin), range.size()));
        const auto wanted = to_vector(Tensor<TypeParam, 1>(whole.flat_weights().data() + range.begin, range.size()));
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(wanted[i]))
              << "unit " << unit << ", element " << i << ", " << buffers << " buffers";
      }
      // As planned: every gather brings each of the others' slices to everybody.
      const UnitUses planned{.sums = 2, .gathers = gathers_of_units(unit_actions(uses(2), buffers), num_layers)};
      const auto ranks = ReductionCommunicators::all(world()).ranks();
      const auto bytes = [&](const UnitUses& counts) {
        return reduction_traffic(sharded.plan, ranks, sharded.options, sizeof(State<TypeParam>), sizeof(TypeParam),
                                 counts)
            .at(over_dp)
            .gather_bytes;
      };
      const UnitUses none{.sums = 2, .gathers = std::vector<int>(num_layers, 0)};
      EXPECT_EQ(gatherer.bytes_sent() - before, bytes(planned) - bytes(none));
    }
  }
}

// Whole numbers: any order of summing gives the same.
TYPED_TEST(ShardedLayersOf, GradientsOfAllMicroBatchesAreInTheShard) {
  using S = State<TypeParam>;
  const auto gradient = [](int rank, int microbatch, Index i) {
    return static_cast<S>((rank + 1) * (microbatch + 2) * (i % 89 + 1));
  };
  for (const int buffers : {1, 2, num_layers}) {
    const Sharded<TypeParam> sharded(buffers);
    const FlatStorage<S>& gradients = sharded.parameters.gradients();
    GradientReducer<S> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients,
                               sharded.parameters.segments(), sharded.parameters.parameters(), sharded.options);
    for (int step = 0; step < 2; ++step) {
      constexpr int microbatches = 3;
      reducer.begin_step();
      for (int m = 0; m < microbatches; ++m)
        for (int unit = num_layers - 1; unit >= 0; --unit) {
          reducer.wait_for_buffer(unit);
          const IndexRange range = sharded.plan.units[static_cast<std::size_t>(unit)];
          std::vector<S> values;
          for (Index i = range.begin; i < range.end; ++i)
            values.push_back(gradient(world().rank(), m + step, i));
          Kokkos::deep_copy(Tensor<S, 1>(gradients.data(range.begin), range.size()), make_tensor(values));
          sharded.mark(reducer, unit);
        }
      for (const IndexRange& range : gradients.held())
        if (gradients.unit_of(range.begin) < 0)
          Kokkos::deep_copy(Tensor<S, 1>(gradients.data(range.begin), range.size()),
                            static_cast<S>(world().rank() + 1));
      reducer.wait();
      const auto held = to_vector(gradients.values());
      int num_sums = 0;
      for (const IndexRange& range : reducer.owned())
        for (Index i = range.begin; i < range.end; ++i, ++num_sums) {
          S wanted = 0;
          for (int rank = 0; rank < world().size(); ++rank)
            for (int m = 0; m < (gradients.unit_of(i) < 0 ? 1 : microbatches); ++m)
              wanted += gradients.unit_of(i) < 0 ? static_cast<S>(rank + 1) : gradient(rank, m + step, i);
          ASSERT_EQ(held[static_cast<std::size_t>(gradients.place(i))], wanted)
              << "element " << i << ", step " << step << ", " << buffers << " buffers";
        }
      EXPECT_GT(num_sums, 0);
    }
  }
}

TEST(ShardedLayers, AnotherOrderThanAnnouncedIsAMistake) {
  const Sharded<float> sharded(2);
  WeightGatherer<float> gatherer(ExecSpace(), ReductionCommunicators::all(world()), sharded.parameters.weights(),
                                 sharded.plan);
  gatherer.begin({0, 1});
  gatherer.use(0);
  EXPECT_ANY_THROW(gatherer.use(2));
  gatherer.use(1);
}

}  // namespace
}  // namespace espalier
