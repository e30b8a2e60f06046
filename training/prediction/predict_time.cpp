// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/predict_time.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/schedule/pipeline_simulator.hpp"
#include "parallel/schedule/unit_simulator.hpp"
#include "planning/layout_limits.hpp"
#include "training/config/emulation.hpp"
#include "training/prediction/predict_traffic.hpp"

namespace espalier {
namespace {

// Bytes that a rank sends in a step, each counted as often as the emulation says.
struct CountedTraffic {
  double tensor = 0;
  double pipeline = 0;
  double reduce = 0;       // gradients, once a step
  double gather = 0;       // weights that were updated
  double unit_reduce = 0;  // what lists of units send (ZeRO-2 and -3)
  double unit_gather = 0;
  double second_reduce = 0;  // in the second level of the sums
  double second_gather = 0;
};

CountedTraffic counted_traffic(const RunConfig& config, const Layout& layout, int rank) {
  const TrainingTypes types = types_of_run(config);
  const std::array<std::uint64_t, num_axes> bytes = predict_traffic(config, layout, rank, types);
  const TrafficByGroup reductions = predict_reduction_traffic(config, layout, rank, types, false);
  const TrafficByGroup all = predict_reduction_traffic(config, layout, rank, types);
  const auto counted = [&](Axis axis) {
    return message_scale(config.emulate, axis) * static_cast<double>(bytes[static_cast<std::size_t>(axis)]);
  };
  CountedTraffic traffic{.tensor = counted(Axis::tp), .pipeline = counted(Axis::pp)};
  for (const GroupKey& group : layout.mesh().groups()) {
    const double scale = message_scale(config.emulate, group);
    traffic.reduce += scale * static_cast<double>(reductions.at(group).reduce_bytes);
    traffic.gather += scale * static_cast<double>(reductions.at(group).gather_bytes);
    traffic.unit_reduce += scale * static_cast<double>(all.at(group).reduce_bytes - reductions.at(group).reduce_bytes);
    traffic.unit_gather += scale * static_cast<double>(all.at(group).gather_bytes - reductions.at(group).gather_bytes);
    traffic.second_reduce += scale * static_cast<double>(all.at(group).second_reduce_bytes);
    traffic.second_gather += scale * static_cast<double>(reductions.at(group).second_gather_bytes);
  }
  return traffic;
}

// The links and times that are emulated.
class Emulation {
 public:
  Emulation(const RunConfig& config, const Layout& layout)
      : config_(config), layout_(layout), chunks_(layout.chunks()), schedules_(make_schedules(config, layout)) {
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      ranks_.push_back(layout.mesh().first_rank_of_stage(stage));
      traffic_.push_back(counted_traffic(config, layout, ranks_.back()));
    }
  }

  TimePrediction predict() const {
    const Simulation with_messages = simulation(1);
    const Simulation without = simulation(0);
    TimePrediction prediction{.source = "the times of --emulate"};
    double data = 0;
    for (std::size_t stage = 0; stage < schedules_.size(); ++stage)
      data = std::max(data, exposed_reduction(stage) + exposed_units(stage));
    for (std::size_t stage = 0; stage < schedules_.size(); ++stage) {
      PhaseSeconds seconds;
      for (const Operation& operation : schedules_[stage]) {
        const Phase phase = operation.kind == OperationKind::forward ? Phase::forward : Phase::backward;
        if (is_compute(operation.kind)) {
          seconds[phase] += work(static_cast<int>(stage), operation);
          seconds[Phase::tensor_comm] += tensor_seconds(stage, operation);
        }
      }
      seconds[Phase::bubble] = without.window - without.busy[stage];
      seconds[Phase::pipeline_comm] = with_messages.window - without.window;
      seconds[Phase::data_comm] = data;
      seconds[Phase::optimizer] = config_.emulate.optimizer;
      prediction.step_seconds = seconds.total();
      prediction.stages.push_back(seconds);
    }
    return prediction;
  }

 private:
  double work(int stage, const Operation& operation) const {
    const ChunkLayers& layers = chunks_[static_cast<std::size_t>(stage)].at(static_cast<std::size_t>(operation.chunk));
    return emulated_seconds(config_.emulate, operation.kind, layers.count, layout_.part_of(stage, operation.chunk));
  }

  Simulation simulation(double messages) const {
    return simulate(schedules_, {.compute =
                                     [&](int stage, const Operation& operation) {
                                       return is_compute(operation.kind)
                                                  ? work(stage, operation) +
                                                        tensor_seconds(static_cast<std::size_t>(stage), operation)
                                                  : 0;
                                     },
                                 .message =
                                     [&, messages](int stage, const Operation&) {
                                       return messages * message_seconds(static_cast<std::size_t>(stage));
                                     }});
  }

  // Seconds of `bytes` in so many `messages` one after another from a stage's rank along an axis.
  double link_seconds(std::size_t stage, Axis axis, double bytes, double messages) const {
    return link_seconds(layout_.mesh().group(ranks_[stage], axis), bytes, messages);
  }
  double link_seconds(const std::vector<int>& group, double bytes, double messages) const {
    const RunConfig::Emulate& e = config_.emulate;
    const bool inside = std::ranges::all_of(group, [&](int rank) {
      return node_of_rank(rank, e.ranks_per_node) == node_of_rank(group.front(), e.ranks_per_node);
    });
    const double latency = inside ? e.latency : e.node_latency;
    const double bandwidth = inside ? e.bandwidth : e.node_bandwidth;
    return messages * latency + (bandwidth > 0 ? bytes / bandwidth : 0);
  }

  double message_seconds(std::size_t stage) const {
    const auto sends = std::ranges::count_if(schedules_[stage], [](const Operation& o) { return is_send(o.kind); });
    return sends == 0 ? 0 : link_seconds(stage, Axis::pp, traffic_[stage].pipeline / static_cast<double>(sends), 1);
  }

  // A stage's bytes on the tensor axis, shared out by the passes of the collectives.
  double tensor_seconds(std::size_t stage, const Operation& operation) const {
    double all = 0;
    for (const Operation& each : schedules_[stage])
      all += each.tensor.passes();
    if (all == 0)
      return 0;
    return link_seconds(stage, Axis::tp, traffic_[stage].tensor * operation.tensor.passes() / all,
                        operation.tensor.passes());
  }

  // Seconds of the reduction that backward does not hide, and of the gather after the update, which nothing hides.
  // The reduction begins when the gradients of the first chunk are complete. What it sends of the last chunk overlaps
  // with the last backward of that chunk alone.
  double exposed_reduction(std::size_t stage) const {
    const CountedTraffic& bytes = traffic_[stage];
    const MeshLayout mesh = layout_.mesh();
    const std::vector<int> first = mesh.first_level_ranks(ranks_[stage], GroupKey{});
    const std::vector<int> second = mesh.second_level_ranks(ranks_[stage], GroupKey{});
    const auto seconds = [&](const std::vector<int>& group, double each, double messages) {
      return each == 0 ? 0 : link_seconds(group, each, messages);
    };
    double beside = 0;
    double last = 0;
    double chunks = 0;
    for (const Operation& operation : schedules_[stage]) {
      const double each = work(static_cast<int>(stage), operation);
      if (operation.reduces) {
        last = each;
        ++chunks;
      }
      if (chunks > 0)
        beside += each;
    }
    // An all_reduce is two steps.
    const double reduction =
        seconds(first, bytes.reduce, layout_.zero_stage == 0 ? 2 : 1) +
        seconds(second, bytes.second_reduce, layout_.zero_stage == 0 || mesh.is_hybrid_sharded() ? 2 : 1);
    const double of_last = reduction / std::max(1.0, chunks);
    return std::max({0.0, reduction - beside, of_last - last}) + seconds(first, bytes.gather, 1) +
           seconds(second, bytes.second_gather, 1);
  }

  // What the layers' gathers and sums add to their kernels.
  double exposed_units(std::size_t stage) const {
    const UnitList list = unit_list(layout_, static_cast<int>(stage), schedules_[stage]);
    const MeshLayout mesh = layout_.mesh();
    const std::vector<int> first = mesh.first_level_ranks(ranks_[stage], GroupKey{});
    // Weights are gathered in one level from all that share their shards.
    const std::vector<int> holders = mesh.is_hybrid_sharded() ? first : mesh.reduction_ranks(ranks_[stage], GroupKey{});
    const auto each = [&](UnitAction::Kind kind, const std::vector<int>& ranks, double bytes) {
      const auto times = std::ranges::count(list.actions, kind, &UnitAction::kind);
      return times == 0 ? 0 : link_seconds(ranks, bytes / static_cast<double>(times), 1);
    };
    UnitTimes times{.kernels = {},
                    .gather = each(UnitAction::Kind::gather, holders, traffic_[stage].unit_gather),
                    .reduce = each(UnitAction::Kind::reduce, first, traffic_[stage].unit_reduce)};
    for (const Operation& operation : schedules_[stage])
      if (const auto layers = static_cast<std::size_t>(list.layers_of_chunk[static_cast<std::size_t>(operation.chunk)]);
          is_compute(operation.kind) && layers > 0)
        times.kernels.insert(times.kernels.end(), layers,
                             work(static_cast<int>(stage), operation) / static_cast<double>(layers));
    return exposed_seconds(list, unit_passes(schedules_[stage], list.layers_of_chunk), times);
  }

  const RunConfig& config_;
  const Layout& layout_;
  std::vector<std::vector<ChunkLayers>> chunks_;
  std::vector<PipelineSchedule> schedules_;
  std::vector<int> ranks_;               // one of each stage
  std::vector<CountedTraffic> traffic_;  // of these
};

constexpr double uncalibrated_error = 0.5;  // of times that nobody measured on such a machine at such work

// What is emulated beside the faults that it injects, and a rehearsal's note, which changes nothing.
RunConfig::Emulate without_faults(RunConfig::Emulate emulate) {
  const RunConfig::Emulate none;
  emulate.slow_rank = none.slow_rank;
  emulate.slow_factor = none.slow_factor;
  emulate.delayed_link = none.delayed_link;
  emulate.delay = none.delay;
  emulate.data = none.data;
  emulate.planned_microbatches = none.planned_microbatches;
  return emulate;
}

// What the planner's formulas do not know of a run; empty where they know it.
std::string why_no_price(const Layout& layout) {
  if (!is_priced(layout.precision))
    return fmt::format("the planner cannot estimate precision.compute = \"{}\"", to_string(layout.precision));
  if (layout.assignment == Assignment::round_robin)
    return "the planner cannot estimate parallel.assignment = \"round_robin\"";
  return layout.recompute_per_stage.empty() ? ""
                                            : "the planner cannot estimate recomputation that differs between stages";
}

std::string how_to_measure(const Layout& layout) {
  const std::string compute = to_string(layout.precision);
  return fmt::format(
      "measure the machine as the run uses it: mpiexec -n {0} espalier bench machine{1} --output ranks_{0}.toml",
      layout.num_devices(), compute == "fp32" ? "" : " --precision fp32," + compute);
}

}  // namespace

Cluster cluster_of(const RunConfig& config) {
  try {
    return cluster_from(config.run.cluster);
  } catch (const Error& error) {
    ErrorReport report = error.report();
    report.where = "run.cluster" + (report.where.empty() ? "" : ": " + report.where);
    throw Error(error.code(), report);
  }
}

void require_cluster(const RunConfig& config) {
  if (!config.run.cluster.empty())
    cluster_of(config);
}

Cluster assumed_cluster(int num_ranks, Precision precision, double gemm_rate) {
  Cluster cluster;
  cluster.name = "assumed";
  cluster.devices_per_node = num_ranks;
  cluster.node = {.bandwidth = 2e9, .latency = 10e-6, .alone = 0};
  Accelerator& device = cluster.device;
  device.name = "a CPU of that GEMM rate";
  device.memory_bandwidth = 8e9;
  device.memory_efficiency = 1;
  device.moves_messages = true;
  device.kernel_seconds = 3e-6;
  device.error_share = uncalibrated_error;
  device.rate(precision) = {.peak_flops = gemm_rate / num_ranks,
                            .matmul_efficiency = 0.95,
                            .half_depth = 10,
                            .fill_waves = 0.1,
                            .attention_efficiency = 0.3};
  return cluster;
}

TimeOutlook predict_time(const RunConfig& config, const Layout& layout, const Cluster& cluster,
                         const std::string& source) {
  if (std::string reason = why_no_price(layout); !reason.empty())
    return {.why_not = std::move(reason)};
  const PlanProblem problem{
      .model = config.model.shape,
      .cluster = cluster,
      .implementation = espalier_implementation(cluster.device.moves_messages, train_settings(config)),
      .sequence_length = config.sequence_length};
  if (const std::string reason = why_impossible(problem, layout); !reason.empty())
    return {.why_not = fmt::format("{} describes another machine: {}; {}", source, reason, how_to_measure(layout))};
  const LayoutPrice price = price_layout(problem, layout);
  TimePrediction prediction{
      .step_seconds = price.step_seconds, .stages = price.stages, .error_share = price.error_share, .source = source};
  if (cluster.device.moves_messages && layout.num_devices() < cluster.devices_per_node) {
    prediction.error_share = std::max(prediction.error_share, uncalibrated_error);
    prediction.note = fmt::format("{} was measured with {} ranks at work, and fewer ranks are faster: {}", source,
                                  cluster.devices_per_node, how_to_measure(layout));
  }
  if (config.data.separates_documents())
    prediction.note += fmt::format(
        "{}the prediction assumes joined documents; separate documents skip a part of attention and are faster",
        prediction.note.empty() ? "" : "; ");
  prediction.calibrated = cluster.device.moves_messages && prediction.error_share < uncalibrated_error;
  return {.time = std::move(prediction)};
}

TimeOutlook time_outlook(const RunConfig& config, const Layout& layout, double gemm_rate) {
  if (config.emulates_operations())
    return {.time = predict_emulated_time(config, layout)};
  if (without_faults(config.emulate) != RunConfig::Emulate{})
    return {.why_not =
                "--emulate emulates links between real operations, so no machine can be predicted: leave out the "
                "links, or emulate the operations, too (--emulate forward=...)"};
  if (std::string reason = why_no_price(layout); !reason.empty())
    return {.why_not = std::move(reason)};
  if (!config.run.cluster.empty())
    return predict_time(config, layout, cluster_of(config), config.run.cluster);
  if (!exec_is_host)
    return {.why_not = fmt::format("run.cluster is not set; set it to a preset, such as run.cluster=h100, or {}",
                                   how_to_measure(layout))};
  return predict_time(config, layout, assumed_cluster(layout.num_devices(), layout.precision, gemm_rate),
                      "the GEMM rate alone; for a better estimate set run.cluster (espalier bench machine)");
}

TimePrediction predict_emulated_time(const RunConfig& config, const Layout& layout) {
  return Emulation(config, layout).predict();
}

}  // namespace espalier
