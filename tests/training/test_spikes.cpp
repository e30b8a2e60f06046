// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Spikes in training: found by all ranks alike, on any layout, before and after a resume.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "tests/training/poisoned_run.hpp"
#include "training/loop/incidents.hpp"

namespace espalier::test {
namespace {

std::vector<std::vector<std::string>> layouts() {
  if (world().size() == 4)
    return {{}, {"parallel.tensor=2", "parallel.pipeline=2"}, {"parallel.pipeline=2", "parallel.zero_stage=3"}};
  if (world().size() == 2)
    return {{}, {"parallel.tensor=2"}, {"parallel.pipeline=2"}, {"parallel.zero_stage=2"}};
  return {{}};
}

// 1 for each step that was skipped.
template <class P>
std::vector<double> skips(const RunConfig& config, const Communicator& communicator) {
  TrainerOn<P> on(config, communicator);
  std::vector<double> skipped;
  for (Index step = 0; step < 20; ++step) {
    const std::vector<Compute<P>> before = flat_weights(on.trainer);
    const StepReport report = on.trainer.step();
    EXPECT_EQ(before == flat_weights(on.trainer), report.skipped) << "step " << report.step;
    skipped.push_back(report.skipped ? 1 : 0);
  }
  return skipped;
}

TEST(Spikes, AreSkippedByAllRanksOnAnyLayout) {
  const SharedFolder folder("spikes");
  const RunConfig config = poisoned_config(folder, "run", world().size(), {"stability.on_spike=skip"});
  std::vector<double> wanted(20, 0.0);
  wanted[poisoned_step - 1] = 1;
  for (const std::vector<std::string>& layout : layouts()) {
    const std::vector<double> mine = skips<Fp32>(laid_out(config, layout), world());
    EXPECT_EQ(mine, wanted);
    std::vector<double> most = mine;
    all_reduce(world(), std::span<double>(most), ReduceOp::max);
    EXPECT_EQ(most, mine) << "the ranks disagree";
  }
}

TEST(Spikes, OnlyUnexpectedDataAreSpikes) {
  const SharedFolder folder("none");
  const RunConfig poisoned = poisoned_config(folder, "run", world().size());
  start_run(poisoned, {});
  EXPECT_EQ(anomalies(poisoned), (std::vector<Index>{poisoned_step}));
  const RunConfig clean = tiny_config(folder, world().size(),
                                      {"stability.spike_window=8", "stability.spike_threshold=6",
                                       "run.directory=\"" + (folder / "clean").string() + "\""});
  start_run(clean, {});
  EXPECT_EQ(anomalies(clean), std::vector<Index>{});
}

// The update that was held back is made after all, once the incident is kept.
TEST(Spikes, WhatTheRunContinuesWithHasTheBitsOfARunThatLooksForNone) {
  const SharedFolder folder("continued");
  const RunConfig seen = poisoned_config(folder, "seen", world().size());
  const RunConfig unseen = poisoned_config(folder, "unseen", world().size(), {"stability.spike_window=0"});
  start_run(seen, {});
  start_run(unseen, {});
  EXPECT_EQ(anomalies(seen), (std::vector<Index>{poisoned_step}));
  EXPECT_EQ(losses(seen), losses(unseen));
}

TEST(Spikes, AResumedRunDecidesAlike) {
  const SharedFolder folder("resumed");
  const RunConfig whole = poisoned_config(folder, "whole", world().size(), {"stability.on_spike=skip"});
  start_run(whole, {});
  const std::vector<std::string> wanted = losses(whole);
  EXPECT_EQ(anomalies(whole), (std::vector<Index>{poisoned_step}));
  for (const Index stop : {poisoned_step - 2, poisoned_step - 1, poisoned_step}) {
    const RunConfig config =
        poisoned_config(folder, fmt::format("stopped-{}", stop), world().size(), {"stability.on_spike=skip"});
    start_run(config, stop_after(stop));
    start_run(config, {});
    EXPECT_EQ(losses(config), wanted) << "stopped after step " << stop;
    EXPECT_EQ(anomalies(config), anomalies(whole));
    EXPECT_EQ(read_metrics(Path(config.run.directory) / "metrics.jsonl").back().at("skipped_steps"), 1);
  }
}

// What is not finite follows the policy in any precision; here weights are made absurd, and then fixed.
TEST(Spikes, WhatIsNotFiniteIsSkippedToo) {
  const SharedFolder folder("non_finite");
  const RunConfig config = tiny_config(folder, world().size(), {"stability.on_spike=skip", "stability.max_skips=1"});
  TrainerOn<Fp32> on(config, world());
  TypedTrainer<Fp32>& trainer = on.trainer;
  trainer.step();
  const std::vector<float> good = flat_weights(trainer);
  const auto set = [&](const std::vector<float>& values) {
    const Kokkos::View<const float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> host(values.data(), values.size());
    Kokkos::deep_copy(trainer.store().flat_weights(), host);
  };
  Index seen = 0;
  constexpr double pause = 0.05;
  trainer.observe_anomalies([&](const StepReport& report) {
    seen = report.step;
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  });
  set(std::vector<float>(good.size(), 1e38F));
  const auto start = std::chrono::steady_clock::now();
  const StepReport skipped = trainer.step();
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  EXPECT_GE(skipped.seconds[Phase::checkpoint], pause) << "what the observer keeps takes time,";
  EXPECT_LE(skipped.step_seconds, whole.count() - pause) << "which is no time of the step";
  EXPECT_TRUE(skipped.skipped);
  EXPECT_EQ(skipped.judgement.anomaly, Anomaly::non_finite);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(trainer.steps_done(), 2) << "its data are used up";
  EXPECT_TRUE(std::isfinite(trainer.last_loss())) << "a checkpoint of now could not be read back";
  set(good);
  EXPECT_FALSE(trainer.step().skipped);
  set(std::vector<float>(good.size(), 1e38F));
  EXPECT_TRUE(trainer.step().skipped);
  expect_refusal(ExitCode::numerical, {"more than 1 steps in a row", "step 5"}, [&] { trainer.step(); });
}

TEST(Spikes, TheFirstIncidentsAreKept) {
  const SharedFolder folder("kept");
  const RunConfig config = poisoned_config(folder, "run", world().size());
  const Start start = start_run(config, {});
  EXPECT_TRUE(start.says("step 14 is a spike", "global samples 104 to 111: the run continues"));
  EXPECT_TRUE(start.says("kept as", "--replay"));
  const Path folder_of_step = folder / "run/incidents/step-00000014-sample-00000104";
  const Incident incident = read_incident(folder_of_step);
  EXPECT_EQ(incident.step, poisoned_step);
  EXPECT_EQ(incident.samples, (IndexRange{104, 112}));
  ASSERT_TRUE(incident.scores);
  EXPECT_GT(std::max(incident.scores->loss, incident.scores->gradient_norm), 6);
  const CheckpointReader weights(resolve_checkpoint(folder_of_step));
  EXPECT_EQ(weights.info().step, poisoned_step - 1) << "the weights before the step";
  EXPECT_FALSE(weights.contains("exp_avg/embedding.token"));
  const RunConfig none = poisoned_config(folder, "none", world().size(), {"stability.keep_incidents=0"});
  start_run(none, {});
  EXPECT_EQ(anomalies(none), (std::vector<Index>{poisoned_step}));
  EXPECT_FALSE(std::filesystem::exists(folder / "none/incidents"));
  expect_refusal(ExitCode::usage, {"this is not an incident", "incident.json"}, [&] { read_incident(folder / "run"); });
}

}  // namespace
}  // namespace espalier::test
