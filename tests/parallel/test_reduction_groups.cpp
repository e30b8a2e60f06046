// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Gradients of a small stage summed over the groups of every layout that the ranks allow; 2 x 2 x 2 with eight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/optim/adamw.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/injected_fault.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "parallel/reduction/reduction_shares.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/message_delays.hpp"
#include "tests/support/shared_mesh.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

constexpr Index narrow_bucket = 700 * 8;  // many buckets, several a matrix

/// One rank's stage on one layout.
template <class S>
struct Stage {
  explicit Stage(const MeshLayout& its_layout)
      : mesh(shared_mesh(its_layout)), parameters(odd_parameters<S>(holds_tied(mesh))), layout(its_layout) {
    parameters.allocate();
    parameters.initialize(ExecSpace(), 5);
  }

  static bool holds_tied(const ProcessMesh& mesh) {
    return mesh.pp().rank() == 0 || mesh.pp().rank() == mesh.pp().size() - 1;
  }

  GradientReducer<S> reducer(int zero_stage, int buckets_in_flight = 3, std::optional<ScalarType> wire = {}) const {
    return reducer(mesh.reductions(), {.bucket_bytes = narrow_bucket,
                                       .buckets_in_flight = buckets_in_flight,
                                       .zero_stage = zero_stage,
                                       .wire = wire});
  }
  GradientReducer<S> reducer(const ReductionCommunicators& communicators, const ReducerOptions& options) const {
    return GradientReducer<S>(ExecSpace(), communicators, parameters.flat_gradients(), parameters.segments(),
                              parameters.parameters(), options);
  }

  void fill_gradients(Index shift) const {
    std::vector<S> values(static_cast<std::size_t>(parameters.flat_size()));
    for (const Segment& segment : parameters.segments())
      for (Index i = segment.offset; i < segment.offset + segment.size; ++i)
        values[static_cast<std::size_t>(i)] = contribution<S>(world().rank(), i + shift);
    Kokkos::deep_copy(parameters.flat_gradients(), make_tensor(values));
  }

  /// The gradients at the owned elements, zero elsewhere, and what they should be: the sum in the order of each level
  /// of the group, of summands `rounded` before, and itself.
  template <class Rounded>
  void expect_sums(const std::vector<IndexRange>& owned, Index shift, const char* what, const Rounded& rounded) const {
    const auto gradients = to_vector(parameters.flat_gradients());
    for (const Segment& segment : parameters.segments()) {
      const auto all = layout.reduction_ranks(world().rank(), segment.group);
      const bool travels = all.size() > 1;
      std::vector<std::vector<int>> levels;  // [rank of the second level][of the first]
      for (const int rank : layout.second_level_ranks(world().rank(), segment.group))
        levels.push_back(layout.first_level_ranks(rank, segment.group));
      for (const IndexRange& range : owned)
        for (Index i = std::max(range.begin, segment.offset); i < std::min(range.end, segment.offset + segment.size);
             ++i) {
          const auto if_travels = [&](S value) { return travels ? rounded(value) : value; };
          S wanted = 0;
          for (const std::vector<int>& ranks : levels) {
            S of_first = if_travels(contribution<S>(ranks[0], i + shift));
            for (std::size_t r = 1; r < ranks.size(); ++r)
              of_first = static_cast<S>(of_first + if_travels(contribution<S>(ranks[r], i + shift)));
            of_first = if_travels(of_first);
            wanted = &ranks == &levels.front() ? of_first : static_cast<S>(wanted + of_first);
          }
          wanted = if_travels(wanted);
          const S got = gradients[static_cast<std::size_t>(i)];
          ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))  // fp16 overflows, to the same
              << "got " << got << ", wanted " << wanted << ": " << what << ", " << layout.text() << ", "
              << to_string(segment.group) << ", element " << i;
        }
    }
  }

  void expect_sums(const std::vector<IndexRange>& owned, Index shift, const char* what) const {
    expect_sums(owned, shift, what, [](S value) { return value; });
  }

  const ProcessMesh& mesh;
  ParameterStore<S> parameters;
  MeshLayout layout;
};

/// All of a few ranks; of eight those with something to tell.
std::vector<MeshLayout> layouts() {
  if (world().size() != 8)
    return layouts_by_distance(world().size(), PerAxis::degrees(1, 1, 1));
  return {make_layout(8, 2, 2, 2), make_layout(8, 1, 2, 4), make_layout(8, 4, 1, 2), make_layout(8, 1, 8, 1)};
}

/// Those, and sums in two levels.
std::vector<MeshLayout> layouts_and_levels() {
  std::vector<MeshLayout> all = layouts();
  const auto add = [&](int tensor, int data, int pipeline, int first) {
    all.push_back(make_layout(world().size(), tensor, data, pipeline));
    all.back().first_level_replicas = first;
  };
  if (world().size() == 4)
    add(1, 4, 1, 2);
  if (world().size() == 8) {
    add(1, 8, 1, 2);
    add(1, 4, 2, 2);
    add(2, 4, 1, 2);
  }
  return all;
}

template <class S>
class ReductionGroupsOf : public testing::Test {};
using StateTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ReductionGroupsOf, StateTypes);

TYPED_TEST(ReductionGroupsOf, SumsOfEachGroupInItsOrder) {
  for (const MeshLayout& layout : layouts_and_levels())
    for (const int zero_stage : {0, 1}) {
      const Stage<TypeParam> stage(layout);
      auto reducer = stage.reducer(zero_stage);
      for (int step = 0; step < 3; ++step) {
        stage.fill_gradients(step);
        reducer.begin_step();
        reducer.wait();
        stage.expect_sums(reducer.owned(), step, zero_stage == 0 ? "sums" : "slices");
      }
    }
}

template <class W>
void expect_sums_on_the_wire() {
  const auto rounded = [](float value) { return static_cast<float>(W(value)); };
  for (const MeshLayout& layout : layouts_and_levels())
    for (const int zero_stage : {0, 1}) {
      const Stage<float> stage(layout);
      auto reducer = stage.reducer(zero_stage, 2, scalar_type_of<W>());
      for (int step = 0; step < 2; ++step) {
        stage.fill_gradients(step);
        reducer.begin_step();
        reducer.wait();
        stage.expect_sums(reducer.owned(), step, to_string(scalar_type_of<W>()), rounded);
      }
    }
}

// Summands are rounded to the wire type, added in fp32, and the sum is rounded once more.
TEST(ReductionGroups, SixteenBitsOnTheWire) {
  expect_sums_on_the_wire<bfloat16>();
  expect_sums_on_the_wire<float16>();
}

// 2 x 2 x 2 on eight ranks: sums as above for any order of marks and whatever the delays.
TEST(ReductionGroups, SameBitsWithDelaysAndAnyOrderOfMarks) {
  const RestoreSettings restore;
  std::mt19937 random(static_cast<unsigned>(11 + world().rank()));
  for (const MeshLayout& layout : layouts_and_levels())
    for (const int zero_stage : {0, 1}) {
      const Stage<float> stage(layout);
      auto reducer = stage.reducer(zero_stage, 1 + zero_stage);
      std::vector<int> order(stage.parameters.segments().size());
      std::iota(order.begin(), order.end(), 0);
      for (int step = 0; step < 2; ++step) {
        delay_messages(world(), 100, static_cast<std::uint64_t>(step + 1));
        std::shuffle(order.begin(), order.end(), random);
        stage.fill_gradients(step);
        reducer.begin_step();
        for (std::size_t i = static_cast<std::size_t>(step); i < order.size(); ++i)
          reducer.mark_ready(order[i]);
        reducer.wait();
        stage.expect_sums(reducer.owned(), step, "delayed");
      }
      delay_messages(world(), 0);
    }
}

// Each rank updates its slices and hands them round; the weights are those of optimizers that update everything.
TYPED_TEST(ReductionGroupsOf, ShardedOptimizerEqualsUnsharded) {
  for (const MeshLayout& layout : layouts_and_levels()) {
    const Stage<TypeParam> whole(layout);
    const Stage<TypeParam> sharded(layout);
    auto reducer = whole.reducer(0);
    auto sharded_reducer = sharded.reducer(1);
    const AdamW<TypeParam> optimizer(whole.parameters, {});
    const AdamW<TypeParam> sharded_optimizer(sharded.parameters, {}, sharded_reducer.owned());
    const Tensor<double, 0> clip("espalier::other::clip");
    Kokkos::deep_copy(clip, 0.25);
    for (int step = 1; step <= 3; ++step) {
      for (const auto* stage : {&whole, &sharded})
        stage->fill_gradients(step);
      reducer.begin_step();
      reducer.wait();
      optimizer.step(ExecSpace(), 1e-2, clip, step);
      sharded_reducer.begin_step();
      sharded_reducer.wait();
      sharded_optimizer.step(ExecSpace(), 1e-2, clip, step);
      sharded_reducer.gather_updated_weights(sharded.parameters.weights());
    }
    EXPECT_TRUE(same_bits(to_vector(sharded.parameters.flat_weights()), to_vector(whole.parameters.flat_weights())))
        << layout.text();
    Index num_owned = 0;
    for (const IndexRange& range : sharded_optimizer.owned())
      num_owned += range.size();
    EXPECT_EQ(static_cast<Index>(sharded_optimizer.exp_avg().extent(0)), num_owned);
    // The moments of each owned range are those of the optimizer of everything.
    const auto moments = to_vector(sharded_optimizer.exp_avg());
    const auto all_moments = to_vector(optimizer.exp_avg());
    for (std::size_t r = 0; r < sharded_optimizer.owned().size(); ++r)
      for (Index i = 0; i < sharded_optimizer.owned()[r].size(); ++i)
        ASSERT_EQ(moments[static_cast<std::size_t>(sharded_optimizer.moment_starts()[r] + i)],
                  all_moments[static_cast<std::size_t>(sharded_optimizer.owned()[r].begin + i)]);
  }
}

void expect_bytes_and_memory(std::optional<ScalarType> wire) {
  for (const MeshLayout& layout : layouts_and_levels())
    for (const int zero_stage : {0, 1}) {
      const Stage<float> stage(layout);
      const auto memory_before = MemoryLedger::instance().current()[Category::communication];
      auto reducer = stage.reducer(zero_stage, 3, wire);
      const auto memory = MemoryLedger::instance().current()[Category::communication] - memory_before;
      const GroupRanks ranks = layout.group_ranks(world().rank());
      const Index bytes = static_cast<Index>(sizeof(float));
      // Planned from the layout alone, as `plan` does.
      const ReducerOptions options{
          .bucket_bytes = narrow_bucket, .buckets_in_flight = 3, .zero_stage = zero_stage, .wire = wire};
      const auto plan =
          plan_reduction(stage.parameters.segments(), stage.parameters.parameters(), ranks, options, bytes);
      const ReductionShares shares(stage.parameters.segments(), stage.parameters.parameters(), ranks, options, bytes);
      const auto wanted = reduction_traffic(plan, ranks, options, bytes, bytes, {}, world().context().max_direct_ranks);
      EXPECT_NEAR(static_cast<double>(memory), static_cast<double>(shares.of(ranks).buffer_bytes),
                  36 * 64.0);  // up to two buffers for three exchanges a communicator, each rounded up by the allocator
      for (int step = 0; step < 2; ++step) {
        reducer.begin_step();
        reducer.wait();
        auto sent = reducer.traffic();
        for (const GroupKey& group : reduction_groups)
          EXPECT_EQ(sent[group].bytes, wanted.at(group).reduce_bytes + wanted.at(group).second_reduce_bytes)
              << layout.text();
        reducer.gather_updated_weights(stage.parameters.weights());
        sent = reducer.traffic();
        std::uint64_t messages = 0;
        for (const auto& [group, traffic] : wanted)
          messages += traffic.messages;
        for (const auto& [group, traffic] : sent)
          messages -= traffic.messages;
        EXPECT_EQ(messages, 0u) << "wanted and not sent, " << layout.text();
        for (const GroupKey& group : reduction_groups)
          EXPECT_EQ(sent[group].bytes, wanted.at(group).bytes()) << layout.text();
      }
    }
}

TEST(ReductionGroups, BytesAndMemoryEqualTheFormulas) {
  expect_bytes_and_memory({});
  expect_bytes_and_memory(ScalarType::bf16);
}

TEST(ReductionGroups, GathersAnyElementType) {
  for (const MeshLayout& layout : layouts_and_levels()) {
    const Stage<float> stage(layout);
    auto reducer = stage.reducer(1);
    const auto size = static_cast<std::size_t>(stage.parameters.flat_size());
    std::vector<bfloat16> values(size, bfloat16(-1.0f));
    for (const IndexRange& range : reducer.owned())
      std::fill(values.begin() + range.begin, values.begin() + range.end,
                bfloat16(static_cast<float>(world().rank() + 1)));
    const auto weights = make_tensor(values);
    std::vector<float> wanted(size);
    for (int rank = 0; rank < world().size(); ++rank) {  // our group's ranks own what we do not
      if (layout.coordinates(rank)[Axis::pp] != stage.mesh.pp().rank())
        continue;
      const auto plan = plan_reduction(stage.parameters.segments(), stage.parameters.parameters(),
                                       layout.group_ranks(rank), {.bucket_bytes = narrow_bucket, .zero_stage = 1}, 4);
      const auto fill_if_ours = [&](IndexRange range, const GroupKey& group) {
        const auto ranks = layout.reduction_ranks(world().rank(), group);
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
          std::fill(wanted.begin() + range.begin, wanted.begin() + range.end, static_cast<float>(rank + 1));
      };
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        const GroupKey& group = plan.buckets[b].group;
        const GroupRank theirs = layout.group_rank(rank, group);
        fill_if_ours(theirs.is_sharded_over_both_levels() ? plan.second_level_buckets[b].slice(theirs.second_rank)
                                                          : plan.buckets[b].slice(theirs.rank),
                     group);
      }
    }
    reducer.begin_step();
    reducer.wait();
    reducer.gather_updated_weights(FlatStorage<bfloat16>(weights));
    const auto gathered = to_vector(weights);
    for (const Bucket& bucket : reducer.buckets()) {
      if (bucket.group == over_tied)
        continue;  // those come from the other stage as well
      for (Index i = bucket.offset; i < bucket.offset + bucket.size; ++i)
        ASSERT_EQ(static_cast<float>(gathered[static_cast<std::size_t>(i)]), wanted[static_cast<std::size_t>(i)])
            << layout.text() << ", element " << i;
    }
    EXPECT_TRUE(std::none_of(gathered.begin(), gathered.end(), [](bfloat16 v) { return static_cast<float>(v) < 0; }))
        << layout.text();
  }
}

// The first stage has all its gradients long before the last one begins: what does not need the last one goes on.
TEST(ReductionGroupsOfFour, ATiedBucketHoldsUpNoOther) {
  ASSERT_GE(world().size(), 4) << "two stages of two replicas";
  const MeshLayout layout = make_layout(world().size(), 1, 0, 2);
  const Stage<float> stage(layout);
  auto reducer = stage.reducer(0, 1);  // one bucket in flight
  stage.fill_gradients(0);
  reducer.begin_step();
  const bool first = stage.mesh.pp().rank() == 0;
  if (first) {
    // Tied gradients are the first to be ready here, and wait for the other stage.
    for (std::size_t s = 0; s < stage.parameters.segments().size(); ++s)
      reducer.mark_ready(static_cast<int>(s));
    const Index last = stage.parameters.segments()[1].offset;  // in the bucket that is reduced last
    float wanted = 0;
    for (const int rank : layout.reduction_ranks(world().rank(), over_dp))
      wanted += contribution<float>(rank, last);
    const Waiter since({});
    while (to_vector(stage.parameters.flat_gradients())[static_cast<std::size_t>(last)] != wanted &&
           since.seconds() < 30)
      reducer.progress();
    EXPECT_EQ(to_vector(stage.parameters.flat_gradients())[static_cast<std::size_t>(last)], wanted);
    EXPECT_EQ(to_vector(stage.parameters.flat_gradients())[0], contribution<float>(world().rank(), 0));
  }
  barrier(stage.mesh.pp());  // only now does the last stage begin
  reducer.wait();
  stage.expect_sums(reducer.owned(), 0, "in the end");
}

TEST(ReductionGroups, InjectedFaultsLeaveOutASum) {
  const RestoreSettings restore;
  for (const MeshLayout& layout : layouts())
    for (const InjectedFault fault : {InjectedFault::no_tied_reduction, InjectedFault::no_tensor_sum}) {
      const Stage<double> stage(layout);
      stage.fill_gradients(0);
      auto reducer = stage.reducer(with_fault(fault, stage.mesh.reductions()), {.bucket_bytes = narrow_bucket});
      reducer.begin_step();
      reducer.wait();
      const auto gradients = to_vector(stage.parameters.flat_gradients());
      for (const Segment& segment : stage.parameters.segments()) {
        const bool broken = segment.group == (fault == InjectedFault::no_tied_reduction ? over_tied : over_tp_and_dp);
        const auto ranks = layout.reduction_ranks(world().rank(), broken ? over_dp : segment.group);
        double wanted = 0;
        for (const int rank : ranks)
          wanted += contribution<double>(rank, segment.offset);
        EXPECT_EQ(gradients[static_cast<std::size_t>(segment.offset)], wanted) << layout.text();
      }
    }
}

TEST(ReductionGroupsPeers, RanksThatCutDifferentlyAreRefused) {
  ASSERT_GT(world().size(), 1) << "nobody to disagree with";
  const auto segments = segments_of({1000});
  const auto gradients = allocate<float>(Category::gradients, "test", 1000);
  const ReducerOptions options{.bucket_bytes = world().rank() == 0 ? 400 : 4000};
  try {
    const GradientReducer<float> reducer(ExecSpace(), ReductionCommunicators::all(world()), gradients, segments, {},
                                         options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
  barrier(world());
}

}  // namespace
}  // namespace espalier
