// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, measured on emulated work: operations sleep for given times, the rest is real.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/collectives/emulated_links.hpp"
#include "parallel/schedule/pipeline_simulator.hpp"
#include "tests/training/tiny_run.hpp"

namespace espalier::test {
namespace {

constexpr double part_seconds = 0.03;  // of forward, backward_input and backward_weight of a whole stage
constexpr int num_attempts = 3;        // other programs on the machine may disturb one

// Links that cost next to nothing, so that waits sleep: four ranks on two cores must not poll their time away.
class EmulatedLinksGuard {
 public:
  explicit EmulatedLinksGuard(const EmulatedLinks& links) { emulate_links(world(), links); }
  ~EmulatedLinksGuard() { emulate_links(world(), {}); }
};
const EmulatedLinks fast_links{.within_node = {.latency = 1e-6}, .between_nodes = {}};

// A step's events on this rank.
std::vector<TimelineEvent> trace_step(Trainer& trainer) {
  trainer.step();  // the first one warms up
  barrier(world());
  world().timeline().switch_on();
  trainer.step();
  world().timeline().switch_off();
  return world().timeline().take();
}

bool is_work(const TimelineEvent& event) {
  return event.track == operations_track && (std::string(event.category) == to_string(Phase::forward) ||
                                             std::string(event.category) == to_string(Phase::backward));
}

// The bubble over all ranks: from the first operation of any to the last of any.
double idle_share(const std::vector<TimelineEvent>& events) {
  double first = std::numeric_limits<double>::infinity();
  double last = 0;
  double busy = 0;
  for (const TimelineEvent& event : events)
    if (is_work(event)) {
      first = std::min(first, event.begin);
      last = std::max(last, event.end);
      busy += event.end - event.begin;
    }
  first = all_reduce(world(), first, ReduceOp::min);
  last = all_reduce(world(), last, ReduceOp::max);
  busy = all_reduce(world(), busy);
  return 1 - busy / (world().size() * (last - first));
}

struct Case {
  const char* schedule;
  int chunks;
  int microbatches;
  std::string text() const { return fmt::format("{}, {} chunks, {} micro-batches", schedule, chunks, microbatches); }
};

RunConfig timed_config(const RunConfig& base, const Case& c) {
  const double seconds = part_seconds / c.chunks;
  return laid_out(
      base, {fmt::format("parallel.pipeline={}", world().size()), fmt::format("parallel.schedule={}", c.schedule),
             fmt::format("parallel.virtual_stages={}", c.chunks), "batch.micro_batch_size=1",
             fmt::format("batch.global_batch_size={}", c.microbatches), fmt::format("emulate.forward={}", seconds),
             fmt::format("emulate.backward_input={}", seconds), fmt::format("emulate.backward_weight={}", seconds)});
}

double simulated_idle_share(const RunConfig& config) {
  const auto compute = [&](int, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::forward: return config.emulate.forward;
      case OperationKind::backward: return config.emulate.backward_input + config.emulate.backward_weight;
      case OperationKind::backward_input: return config.emulate.backward_input;
      case OperationKind::backward_weight: return config.emulate.backward_weight;
      default: return 0.0;
    }
  };
  return simulate(make_schedules(make_run_layout(config, world().size()).pipeline_shape()), {.compute = compute})
      .idle_share;
}

// The attempt that comes nearest to the simulator.
double measure_idle_share(const RunConfig& config, double simulated) {
  const EmulatedLinksGuard guard(fast_links);
  TrainerOn<Fp32> on(config, world());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_attempts && !(std::abs(best - simulated) <= 0.02); ++i) {
    const double share = idle_share(trace_step(on.trainer));
    if (std::abs(share - simulated) < std::abs(best - simulated))
      best = share;
  }
  return best;
}

RunConfig small_config(const SharedFolder& folder) {
  return tiny_config(
      folder, 1,
      {"model.num_layers=8", "model.hidden_size=16", "model.ffn_hidden_size=16", "model.max_sequence_length=8"});
}

// Measures every schedule; 1f1b comes first, what must be below it after it.
void expect_simulated_times(int microbatches) {
  const SharedFolder folder("pipeline_time");
  const RunConfig base = small_config(folder);
  double fused = 0;
  for (const char* const schedule : {"1f1b", "zero_bubble", "interleaved", "gpipe", "sequential"}) {
    const bool interleaved = std::string(schedule) == "interleaved";
    const Case c{schedule, interleaved ? 2 : 1, microbatches};
    const RunConfig config = timed_config(base, c);
    const double simulated = simulated_idle_share(config);
    const double measured = measure_idle_share(config, simulated);
    if (world().rank() == 0)
      fmt::print("{} stages, {}: idle {:.3f}, simulated {:.3f}\n", world().size(), c.text(), measured, simulated);
    EXPECT_NEAR(measured, simulated, 0.05) << c.text();
    if (schedule == std::string("1f1b"))
      fused = measured;
    if (schedule == std::string("zero_bubble") || (interleaved && microbatches >= world().size())) {
      EXPECT_LT(measured, fused) << c.text();
    }
  }
}

TEST(PipelineTime, OneMicrobatch) { expect_simulated_times(1); }
TEST(PipelineTime, FourMicrobatches) { expect_simulated_times(4); }
TEST(PipelineTimeLong, SixteenMicrobatches) { expect_simulated_times(16); }

TEST(PipelineActivations, LedgerHoldsAsManyMicrobatchesAsTheListNeeds) {
  const SharedFolder folder("in_flight");
  const RunConfig base = small_config(folder);
  const int p = world().size();
  for (const int microbatches : {1, 2, 4, 8})
    for (const char* const schedule : {"1f1b", "zero_bubble", "gpipe"}) {
      const Case c{schedule, 1, microbatches};
      const RunConfig config = timed_config(base, c);
      const std::size_t before = MemoryLedger::instance().current()[Category::activations];
      const TrainerOn<Fp32> on(config, world());
      const std::size_t bytes = MemoryLedger::instance().current()[Category::activations] - before;
      const auto one = on.trainer.model().measure_activations(1, config.sequence_length, {});
      const int stage = on.mesh.pp().rank();
      const int in_flight = slots_needed(make_schedule(on.layout.pipeline_shape(), stage), 0);
      EXPECT_EQ(bytes, static_cast<std::size_t>(in_flight * one.slots)) << c.text();
      if (schedule == std::string("1f1b")) {
        EXPECT_EQ(in_flight, std::min(microbatches, p - stage)) << c.text();
      } else if (schedule == std::string("zero_bubble")) {
        EXPECT_LE(in_flight, std::min(microbatches, p)) << c.text();
      } else {
        EXPECT_EQ(in_flight, microbatches) << c.text();
      }
    }
}

TEST(PipelineActivations, ChunksShareTheirSlotsWhereThatTakesLess) {
  const SharedFolder folder("shared_slots");
  const RunConfig config = timed_config(small_config(folder), {"interleaved", 2, 8});
  const std::size_t before = MemoryLedger::instance().current()[Category::activations];
  const TrainerOn<Fp32> on(config, world());
  const std::size_t bytes = MemoryLedger::instance().current()[Category::activations] - before;
  const int stage = on.mesh.pp().rank();
  const PipelineSchedule list = make_schedule(on.layout.pipeline_shape(), stage);
  Index apart = 0;
  Index largest = 0;
  for (std::size_t chunk = 0; chunk < 2; ++chunk) {
    ActivationMemory one{.chunks = {{.slots = 0}, {.slots = 0}}, .slots_together = 1};
    one.chunks[chunk].slots = 1;
    const Index slot = on.trainer.model().measure_activations(1, config.sequence_length, one).slots;
    apart += slots_needed(list, static_cast<int>(chunk)) * slot;
    largest = std::max(largest, slot);
  }
  const Index together = slots_needed(list) * largest;
  EXPECT_EQ(static_cast<Index>(bytes), std::min(together, apart)) << "stage " << stage;
  EXPECT_EQ(on.trainer.model().shares_slots(), together < apart) << "stage " << stage;
  EXPECT_TRUE(stage > 0 || together < apart) << "the first stage is where chunks hold most by turns";
}

// Seconds that some of the events cover.
template <class Wanted>
double covered(std::vector<TimelineEvent> events, const Wanted& wanted) {
  std::erase_if(events, [&](const TimelineEvent& event) { return !wanted(event); });
  std::sort(events.begin(), events.end(),
            [](const TimelineEvent& a, const TimelineEvent& b) { return a.begin < b.begin; });
  double sum = 0;
  double end = 0;
  for (const TimelineEvent& event : events) {
    sum += std::max(0.0, event.end - std::max(end, event.begin));
    end = std::max(end, event.end);
  }
  return sum;
}

constexpr double backward_seconds = 0.8;
constexpr double reduction_seconds = backward_seconds / 2;

bool is_data_comm(const TimelineEvent& event, int track) {
  return std::string(event.category) == to_string(Phase::data_comm) && event.track == track;
}

// Of a step with one micro-batch, on links so slow that the reduction takes half as long as backward: which part of it
// goes on behind backward. 1 - (the longest wait of any rank) / (what the reduction takes).
double overlapped_share(const RunConfig& config) {
  TrainerOn<Fp32> on(config, world());
  const TypedTrainer<Fp32>& trainer = on.trainer;
  const auto traffic = reduction_traffic(trainer.reducer().plan(), on.mesh.reductions().ranks(), {}, 4, 4);
  const double bytes = static_cast<double>(traffic.at(GroupKey{}).reduce_bytes) * config.emulate.message_scale;
  const EmulatedLinksGuard guard(
      {.within_node = {.latency = 0, .bytes_per_second = all_reduce(world(), bytes, ReduceOp::max) / reduction_seconds},
       .between_nodes = {},
       .message_scale = config.emulate.message_scale});
  const std::vector<TimelineEvent> events = trace_step(on.trainer);
  const auto seconds_of = [&](int track, ReduceOp op) {
    return all_reduce(world(), covered(events, [&](const TimelineEvent& event) { return is_data_comm(event, track); }),
                      op);
  };
  const double exposed = seconds_of(operations_track, ReduceOp::max);
  EXPECT_GE(seconds_of(communication_track, ReduceOp::min), 0.9 * reduction_seconds)
      << "the links are as slow as they were made";
  const double hidden = 1 - exposed / reduction_seconds;
  if (world().rank() == 0)
    fmt::print("{:.0f} MB in {} buckets, {:.2f} s behind {:.2f} s of backward: {:.3f} s exposed, {:.2f} hidden\n",
               bytes * 1e-6, trainer.reducer().buckets().size(), reduction_seconds, backward_seconds, exposed, hidden);
  return hidden;
}

void expect_hidden(const RunConfig& base, const std::vector<std::string>& shape) {
  std::vector<std::string> overrides = {
      fmt::format("parallel.data={}", world().size()), fmt::format("batch.micro_batch_size={}", 8 / world().size()),
      "emulate.forward=0.05", fmt::format("emulate.backward_input={}", backward_seconds / 2),
      fmt::format("emulate.backward_weight={}", backward_seconds / 2)};
  overrides.insert(overrides.end(), shape.begin(), shape.end());
  const RunConfig config = laid_out(base, overrides);
  double best = 0;
  for (int i = 0; i < num_attempts && best < 0.85; ++i)
    best = std::max(best, overlapped_share(config));
  EXPECT_GE(best, 0.8);
}

TEST(PipelineOverlap, ReductionIsHiddenBehindBackward) {
  const SharedFolder folder("overlap");
  expect_hidden(small_config(folder),
                {"model.hidden_size=32", "model.ffn_hidden_size=128", "emulate.message_scale=500"});
}

// 100 MB that are really sent: few wide layers, many narrow ones.
TEST(PipelineOverlapLong, LargeGradientsAreHidden) {
  const SharedFolder folder("overlap_large");
  for (const auto& [layers, channels] : {std::pair{8, 512}, std::pair{32, 256}})
    expect_hidden(small_config(folder),
                  {fmt::format("model.num_layers={}", layers), fmt::format("model.hidden_size={}", channels),
                   fmt::format("model.ffn_hidden_size={}", 4 * channels)});
}

// The gradients of the later layers of a stage are final while it waits for those of the other stage.
TEST(PipelineOverlap, ReductionGoesOnWhileAReceiveWaits) {
  ASSERT_EQ(world().size(), 4) << "two stages of two replicas";
  const SharedFolder folder("overlap_receive");
  const RunConfig config = laid_out(
      small_config(folder), {"parallel.data=2", "parallel.pipeline=2", "parallel.virtual_stages=2",
                             "parallel.schedule=interleaved", "batch.micro_batch_size=4", "emulate.forward=0.01",
                             "emulate.backward_input=0.2", "emulate.backward_weight=0.2", "emulate.message_scale=500"});
  TrainerOn<Fp32> on(config, world());
  // Two steps of a reduction begin with the end of an operation and reach into the wait that follows.
  const EmulatedLinksGuard guard({.within_node = {.latency = 0.1}, .between_nodes = {}});
  const std::vector<TimelineEvent> events = trace_step(on.trainer);
  constexpr double margin = 1e-3;  // what ends with a block ends before
  Index num_finished = 0;
  for (const TimelineEvent& wait : events)
    if (wait.track == operations_track && std::string(wait.category) == to_string(Phase::bubble))
      num_finished += std::count_if(events.begin(), events.end(), [&](const TimelineEvent& reduction) {
        return is_data_comm(reduction, communication_track) && reduction.end > wait.begin + margin &&
               reduction.end < wait.end - margin;
      });
  EXPECT_GT(num_finished, 0);
}

/// Of each gather of a layer's weights: whether a block was computed while it was under way.
class GathersBehindBlocks : public StepObserver {
 public:
  GathersBehindBlocks() { world().state()->context->observers.add(*this); }
  ~GathersBehindBlocks() override { world().state()->context->observers.remove(*this); }
  GathersBehindBlocks(const GathersBehindBlocks&) = delete;
  GathersBehindBlocks& operator=(const GathersBehindBlocks&) = delete;

  void block_done(double, const std::function<void()>&) override { last_block_ = world().clock().now(); }
  void spent(const SpentTime& time) override {
    if (time.in_background && time.what.starts_with("gather layer"))
      is_behind_.push_back(last_block_ > time.begin);
  }
  std::ptrdiff_t num_behind() const { return std::count(is_behind_.begin(), is_behind_.end(), true); }
  std::ptrdiff_t num_alone() const { return std::count(is_behind_.begin(), is_behind_.end(), false); }

 private:
  double last_block_ = 0;
  std::vector<bool> is_behind_;
};

// ZeRO-3: a layer is on its way while another is computed, over both passes of two micro-batches. The first has none.
TEST(PipelineOverlap, LayersAreGatheredBehindBlocks) {
  const SharedFolder folder("overlap_gathers");
  const RunConfig config = laid_out(
      small_config(folder), {fmt::format("parallel.data={}", world().size()), "parallel.zero_stage=3",
                             fmt::format("batch.micro_batch_size={}", 4 / world().size()), "emulate.forward=0.01"});
  TrainerOn<Fp32> on(config, world());
  const EmulatedLinksGuard guard(fast_links);
  on.trainer.step();
  const GathersBehindBlocks gathers;
  on.trainer.step();
  EXPECT_EQ(gathers.num_alone(), 1);
  EXPECT_EQ(gathers.num_behind(), 7 + 3 * 6) << "of eight layers two are at hand where the passes turn";
}

// The last stage has its part of the token embedding long before the first: until then it waits for work, not for the
// links.
TEST(PipelineOverlap, WaitingForTheTableOfTheFirstStageIsBubble) {
  const SharedFolder folder("late_table");
  const RunConfig config = laid_out(
      small_config(folder), {fmt::format("parallel.pipeline={}", world().size()), "batch.micro_batch_size=8",
                             "emulate.forward=0.01", "emulate.backward_input=0.2", "emulate.backward_weight=0.2"});
  const EmulatedLinksGuard guard(fast_links);
  TrainerOn<Fp32> on(config, world());
  StepReport report = on.trainer.step();
  for (int i = 0; i < num_attempts && report.seconds[Phase::data_comm] > 0.1; ++i)
    report = on.trainer.step();
  EXPECT_LT(report.seconds[Phase::data_comm], 0.1);
  if (on.mesh.pp().rank() == world().size() - 1) {
    EXPECT_GT(report.seconds[Phase::bubble], 0.3);
  }
}

}  // namespace
}  // namespace espalier::test
