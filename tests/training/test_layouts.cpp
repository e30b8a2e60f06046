// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The numbers do not depend on the layout: however the model is split, it is the model of one rank that is trained.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/message_delays.hpp"
#include "tests/training/families.hpp"
#include "tests/training/layout_cases.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

std::string text_of(const RunConfig& config) {
  return make_run_layout(config, world().size()).short_text() + ", order " + to_string(config.layout.order);
}

template <class P>
void expect_curve(const Curve& got, const Curve& wanted, double tolerance, const std::string& what) {
  EXPECT_LT(largest_relative_error(got.losses, wanted.losses), tolerance) << what;
  EXPECT_LT(largest_relative_error(got.norms, wanted.norms), 10 * tolerance) << what;
}

Curve first_steps(Curve curve, int steps) {
  curve.losses.resize(static_cast<std::size_t>(steps));
  curve.norms.resize(static_cast<std::size_t>(steps));
  return curve;
}

// What decides the bits: all but the order of the operations.
std::string stages_of(const RunConfig& config) {
  const Layout layout = make_run_layout(config, world().size());
  return fmt::format("{}, {} chunks, ZeRO {} over {}, sequence-parallel {}", layout.mesh().text(),
                     layout.virtual_stages, layout.zero_stage, layout.shard_replicas, layout.sequence_parallel);
}

TEST(Layouts, EveryLayoutHasTheLossesOfOneRank) {
  const SharedFolder folder("layouts");
  const RunConfig base = split_config(folder);
  const Curve wanted = curve_of_one_rank<Fp32>(base, 20);
  EXPECT_LT(wanted.losses.back(), wanted.losses.front() - 0.1) << "the model must learn, or equality proves nothing";
  std::map<std::string, Curve> by_stages;  // all schedules of the same stages give the same bits
  std::set<ScheduleKind> schedules;
  std::set<std::string> meshes;
  for (const RunConfig& config : configs_to_verify(base)) {
    meshes.insert(make_run_layout(config, world().size()).mesh().text());
    // Eight ranks, which take turns on two cores, have most layouts.
    const int steps = world().size() == 8 ? 3 : config.layout.zero_stage < 2 ? 20 : 5;
    const Curve got = train_curve<Fp32>(config, world(), steps);
    expect_curve<Fp32>(got, first_steps(wanted, steps), 1e-5, text_of(config));
    const auto [first, is_first] = by_stages.emplace(stages_of(config), got);
    EXPECT_TRUE(is_first || first->second == got) << text_of(config) << " differs from another order of operations";
    schedules.insert(config.layout.schedule);
  }
  EXPECT_EQ(schedules.size(), schedule_kinds_with_lists().size()) << "some schedule was not tested";
  EXPECT_EQ(meshes.size(), layouts_by_distance(world().size(), PerAxis::degrees(1, 1, 1)).size())
      << "some mesh was left out";
}

// A few, in the precision in which no wrong reduction hides behind rounding.
TEST(Layouts, LossesOfOneRankInFp64) {
  const SharedFolder folder("layouts64");
  const RunConfig base = split_config(folder);
  const Curve wanted = curve_of_one_rank<Fp64>(base, 20);
  const std::map<int, std::vector<Overrides>> layouts = {
      {2,
       {degrees(2, 1, 1, {"parallel.sequence_parallel=true"}), degrees(1, 1, 2, {"parallel.schedule=zero_bubble"}),
        degrees(1, 2, 1, {"parallel.zero_stage=1"}), degrees(1, 2, 1, {"parallel.zero_stage=3"})}},
      {4,
       {degrees(2, 1, 2, {"parallel.sequence_parallel=true", "parallel.schedule=zero_bubble"}),
        degrees(1, 2, 2, {"parallel.zero_stage=1", "parallel.schedule=interleaved", "parallel.virtual_stages=2"}),
        degrees(2, 2, 1, {"parallel.sequence_parallel=true", "parallel.zero_stage=2"}), degrees(4, 1, 1),
        degrees(1, 1, 4), degrees(1, 2, 2, {"parallel.zero_stage=3", "parallel.schedule=zero_bubble"})}},
      {8, {degrees(2, 2, 2, {"parallel.sequence_parallel=true", "parallel.zero_stage=3"}), degrees(4, 1, 2)}}};
  for (const Overrides& overrides : layouts.at(world().size())) {
    const RunConfig config = laid_out(base, overrides);
    expect_curve<Fp64>(train_curve<Fp64>(config, world(), 20), wanted, 1e-10, text_of(config));
  }
}

TEST(Layouts, SumsInTwoLevelsGiveTheLossesOfOneRank) {
  const SharedFolder folder("layouts_two_levels");
  const RunConfig base = split_config(folder);
  const Curve wanted = curve_of_one_rank<Fp64>(base, 6);
  for (const RunConfig& config : two_level_configs(base)) {
    EXPECT_EQ(make_run_layout(config, world().size()).first_level_replicas, 2);
    const Curve got = train_curve<Fp64>(config, world(), 6);
    expect_curve<Fp64>(got, wanted, 1e-10, text_of(config) + ", two levels");
    EXPECT_EQ(train_curve<Fp64>(config, world(), 6), got) << "other bits in another run";
  }
}

TEST(Layouts, EveryFamilyHasTheLossesOfOneRank) {
  const SharedFolder folder("layouts_families");
  for (const auto& [family, keys] : families()) {
    const RunConfig base = split_config(folder, keys);
    const Curve wanted = curve_of_one_rank<Fp32>(base, 8), exact = curve_of_one_rank<Fp64>(base, 4);
    for (const Overrides& overrides : some_layouts()) {
      const RunConfig config = laid_out(base, overrides);
      const std::string what = family + ": " + text_of(config);
      expect_curve<Fp32>(train_curve<Fp32>(config, world(), 8), wanted, 1e-5, what);
      expect_curve<Fp64>(train_curve<Fp64>(config, world(), 4), exact, 1e-11, what);
    }
  }
}

TEST(Layouts, SameBitsTwiceAlsoWithDelayedMessages) {
  const SharedFolder folder("layout_bits");
  const RunConfig base = split_config(folder);
  const std::map<int, std::vector<Overrides>> layouts = {
      {2,
       {degrees(2, 1, 1, {"parallel.sequence_parallel=true"}), degrees(1, 1, 2),
        degrees(1, 1, 2, {"parallel.schedule=interleaved", "parallel.virtual_stages=2"})}},
      {4,
       {degrees(2, 1, 2, {"parallel.sequence_parallel=true", "parallel.schedule=zero_bubble"}),
        degrees(1, 2, 2, {"parallel.zero_stage=2", "parallel.schedule=zero_bubble"}), degrees(4, 1, 1)}},
      {8, {degrees(2, 2, 2, {"parallel.sequence_parallel=true", "parallel.zero_stage=3"})}}};
  for (const Overrides& overrides : layouts.at(world().size())) {
    const RunConfig config = laid_out(base, overrides);
    const Curve first = train_curve<Fp32>(config, world(), 6);
    EXPECT_EQ(train_curve<Fp32>(config, world(), 6), first) << text_of(config);
    delay_messages(world(), 500, 42);
    const Curve delayed = train_curve<Fp32>(config, world(), 6);
    delay_messages(world(), 0);
    EXPECT_EQ(delayed, first) << text_of(config) << ", with delays";
  }
}

TEST(Layouts, OddShapesHaveTheLossesOfOneRank) {
  const SharedFolder folder("layouts_odd");
  const RunConfig base = split_config(folder);
  std::map<Overrides, Curve> references;  // by model
  for (const OddLayout& odd : odd_layouts(world().size())) {
    const RunConfig model = parse_run_config(to_toml(base), "model", odd.model, 1);
    auto reference = references.find(odd.model);
    if (reference == references.end())
      reference = references.emplace(odd.model, curve_of_one_rank<Fp32>(model, 10)).first;
    const RunConfig config = laid_out(model, odd.layout);
    const Curve got = train_curve<Fp32>(config, world(), 10);
    expect_curve<Fp32>(got, reference->second, 1e-5, std::string(odd.what) + ": " + text_of(config));
  }
}

}  // namespace
}  // namespace espalier::test
