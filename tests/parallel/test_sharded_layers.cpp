// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// ZeRO-2 and -3: layers of which a rank keeps slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "core/kokkos_compat.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "parallel/observe/timeline.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "parallel/reduction/weight_gatherer.hpp"
#include "parallel/schedule/unit_actions.hpp"
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
  explicit Sharded(int buffers, const ReductionCommunicators& communicators = ReductionCommunicators::all(world()))
      : parameters(layered_parameters<T>()) {
    plan = plan_reduction(parameters.segments(), parameters.parameters(), communicators.ranks(), options,
                          sizeof(State<T>));
    parameters.allocate(plan.weight_sharding(3, buffers), plan.gradient_sharding(buffers));
    parameters.initialize(ExecSpace(), 5);
  }
  ReducerOptions options{
      .bucket_bytes = 400 * 4, .buckets_in_flight = 2, .zero_stage = 3, .layers_of_chunk = {num_layers}};
  ReductionPlan plan;
  ParameterStore<T> parameters;
};

/// All ranks at once; of four also in two levels. The mesh is never freed, as the tests end after MPI.
std::vector<ReductionCommunicators> all_levels() {
  std::vector<ReductionCommunicators> levels{ReductionCommunicators::all(world())};
  if (world().size() == 4) {
    const MeshLayout layout{.degrees = PerAxis::degrees(1, 4, 1), .first_level_replicas = 2};
    static const auto& mesh = *new ProcessMesh(world(), layout);
    levels.push_back(mesh.reductions());
  }
  return levels;
}

std::vector<std::pair<ReductionCommunicators, int>> levels_and_buffers(const std::vector<int>& buffers) {
  std::vector<std::pair<ReductionCommunicators, int>> all;
  for (const ReductionCommunicators& communicators : all_levels())
    for (const int each : buffers)
      all.emplace_back(communicators, each);
  return all;
}

/// Forward and backward of so many micro-batches.
PipelineSchedule passes_of(int microbatches) {
  PipelineSchedule list;
  for (int m = 0; m < microbatches; ++m)
    for (const OperationKind kind : {OperationKind::forward, OperationKind::backward})
      list.push_back({.kind = kind, .microbatch = m});
  return list;
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
  for (const auto& [communicators, buffers] : levels_and_buffers({1, 2, 3, num_layers})) {
    const Sharded<TypeParam> sharded(buffers, communicators);
    const FlatStorage<TypeParam>& weights = sharded.parameters.weights();
    WeightGatherer<TypeParam> gatherer(ExecSpace(), communicators, weights, sharded.plan);
    for (int pass = 0; pass < 3; ++pass) {
      Kokkos::deep_copy(weights.buffers(), static_cast<TypeParam>(-1));  // a use before its gather is seen
      const std::uint64_t before = gatherer.bytes_sent();
      const UnitList list = unit_list(passes_of(2), {num_layers}, {.weights = buffers});
      for (const UnitAction& action : list.actions) {
        if (action.kind == UnitAction::Kind::gather)
          gatherer.gather(action.unit);
        if (action.kind == UnitAction::Kind::release)
          gatherer.release(action.unit);
        if (action.kind != UnitAction::Kind::wait_for_weights)
          continue;
        gatherer.acquire(action.unit);
        const IndexRange range = sharded.plan.units[static_cast<std::size_t>(action.unit)];
        const auto got = to_vector(Tensor<TypeParam, 1>(weights.data(range.begin), range.size()));
        const auto wanted = to_vector(Tensor<TypeParam, 1>(whole.flat_weights().data() + range.begin, range.size()));
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(wanted[i]))
              << "unit " << action.unit << ", element " << i << ", " << buffers << " buffers";
      }
      // As planned: every gather brings each of the others' slices to everybody.
      const std::vector<int> sums(num_layers, 2);
      const UnitUses planned{.sums = sums,
                             .gathers = times_of_units(list.actions, UnitAction::Kind::gather, num_layers)};
      const auto ranks = communicators.ranks();
      const auto bytes = [&](const UnitUses& counts) {
        return reduction_traffic(sharded.plan, ranks, sharded.options, sizeof(State<TypeParam>), sizeof(TypeParam),
                                 counts)
            .at(over_dp)
            .gather_bytes;
      };
      const UnitUses none{.sums = sums, .gathers = std::vector<int>(num_layers, 0)};
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
  for (const auto& [communicators, buffers] : levels_and_buffers({1, 2, num_layers})) {
    const Sharded<TypeParam> sharded(buffers, communicators);
    const FlatStorage<S>& gradients = sharded.parameters.gradients();
    GradientReducer<S> reducer(ExecSpace(), communicators, gradients, sharded.parameters.segments(),
                               sharded.parameters.parameters(), sharded.options);
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
          reducer.reduce(unit, m + 1 == microbatches);
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
          ASSERT_EQ(held[static_cast<std::size_t>(gradients.offset_of(i))], wanted)
              << "element " << i << ", step " << step << ", " << buffers << " buffers";
        }
      EXPECT_GT(num_sums, 0);
      const UnitUses planned{.sums = std::vector<int>(num_layers, microbatches),
                             .gathers = std::vector<int>(num_layers, 0)};
      ReductionTraffic wanted;
      for (const auto& [group, traffic] : reduction_traffic(sharded.plan, communicators.ranks(), sharded.options,
                                                            sizeof(S), sizeof(TypeParam), planned))
        wanted.reduce_bytes += traffic.reduce_bytes + traffic.second_reduce_bytes;
      EXPECT_EQ(bytes_sent(reducer), wanted.reduce_bytes);
    }
  }
}

// Also where a layer of one row leaves nothing of it for some ranks, at either level.
TEST(ShardedLayers, EachSumOfALayerIsInTheTimelineOnce) {
  const RestoreSettings restore;
  for (const ReductionCommunicators& communicators : all_levels()) {
    ParameterStore<float> parameters;
    for (const int block : {1, 2})
      parameters.declare({.name = "h." + std::to_string(block), .shape = {1, 16}, .block = block, .init_std = 1});
    parameters.lay_out();
    const ReducerOptions options{.zero_stage = 2, .layers_of_chunk = {2}};
    const ReductionPlan plan =
        plan_reduction(parameters.segments(), parameters.parameters(), communicators.ranks(), options, sizeof(float));
    parameters.allocate(plan.weight_sharding(2, 2), plan.gradient_sharding(2));
    GradientReducer<float> reducer(ExecSpace(), communicators, parameters.gradients(), parameters.segments(),
                                   parameters.parameters(), options);
    world().timeline().switch_on();
    reducer.begin_step();
    for (const bool is_last : {false, true})
      for (const int unit : {1, 0}) {
        reducer.wait_for_buffer(unit);
        reducer.reduce(unit, is_last);
      }
    reducer.wait();
    std::map<std::string, int> times;
    for (const TimelineEvent& event : world().timeline().take())
      ++times[event.name];
    const int wanted =
        world().context().device_links == nullptr ? 2 : 0;  // where they are enqueued nobody sees the end
    EXPECT_EQ(times["reduce layer 0"], wanted);
    EXPECT_EQ(times["reduce layer 1"], wanted);
  }
}

TEST(ShardedLayers, AnotherUnitThanGatheredIsAMistake) {
  const Sharded<float> sharded(2);
  WeightGatherer<float> gatherer(ExecSpace(), ReductionCommunicators::all(world()), sharded.parameters.weights(),
                                 sharded.plan);
  gatherer.gather(0);
  EXPECT_ANY_THROW(gatherer.acquire(2));
  gatherer.acquire(0);
  EXPECT_ANY_THROW(gatherer.gather(2));
  gatherer.release(0);
  gatherer.gather(2);
  EXPECT_ANY_THROW(gatherer.acquire(0));
  gatherer.acquire(2);
}

}  // namespace
}  // namespace espalier
