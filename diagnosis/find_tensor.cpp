// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "diagnosis/find_time.hpp"
#include "io/units.hpp"
#include "models/layout_rules.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layout_limits.hpp"
#include "training/config/emulation.hpp"
#include "training/config/run_layout.hpp"
#include "training/config/shard_over.hpp"

namespace espalier {
namespace {

bool tensor_crosses_nodes(const RecordedRun& run) {
  for (int rank = 0; rank < run.config.layout.num_devices(); ++rank)
    for (const int member : run.config.layout.mesh().group(rank, Axis::tp))
      if (run.node_of(member) != run.node_of(rank))
        return true;
  return false;
}

// What the same messages would take inside a node, where [emulate] has both links: t = K latency + bytes / bandwidth
// gives the number of messages in a row, K.
Change inside_nodes(const RecordedRun& run, double seconds) {
  const EmulatedLinks links = emulated_links(run.config.emulate);
  const auto transfer = [&](const LinkSpeed& link) {
    const double bytes = static_cast<double>(run.ranks.front().back().bytes_sent[static_cast<std::size_t>(Axis::tp)]);
    return link.bytes_per_second > 0 ? bytes * message_scale(run.config.emulate, Axis::tp) / link.bytes_per_second
                                     : 0.0;
  };
  Change change{.setting =
                    "a parallel.tensor whose groups fit in one node, \"tp\" first in parallel.order, and "
                    "parallel.pipeline between nodes",
                .gain_seconds = seconds,
                .estimated_by = "an upper bound: all of it, as if links inside a node cost nothing"};
  const double latency = links.between_nodes.latency;
  if (!links.on() || latency <= 0)
    return change;
  const double messages = std::max(0.0, seconds - transfer(links.between_nodes)) / latency;
  change.gain_seconds = std::max(0.0, seconds - messages * links.within_node.latency - transfer(links.within_node));
  change.estimated_by = "the same messages over the links inside a node";
  return change;
}

// A layout with half the tensor ranks, and what that leaves out of its estimate.
struct FewerRanks {
  std::string setting;
  std::string half;         // of what each rank then has half
  std::string not_counted;  // of the gain
  Layout layout;
};

std::vector<FewerRanks> ways_to_fewer_ranks(const RunConfig& config) {
  std::vector<FewerRanks> ways;
  Layout half = config.layout;
  half.tensor /= 2;
  const std::string tensor = fmt::format("parallel.tensor = {}", half.tensor);
  if (config.layout.num_microbatches() % 2 == 0) {
    Layout layout = half;
    layout.data *= 2;
    ways.push_back(
        {tensor + ", with twice the replicas", "half the micro-batches", "longer sums of gradients are", layout});
    if (layout.zero_stage == 0) {
      layout.zero_stage = 1;
      ways.push_back({tensor + ", parallel.zero_stage = 1, with twice the replicas", "half the micro-batches",
                      "longer sums of gradients are", layout});
    }
  }
  if (has_layer_for_each_part(config.model.shape, 2 * config.layout.pipeline, config.layout.virtual_stages)) {
    half.pipeline *= 2;
    half.layers.clear();
    if (half.schedule == ScheduleKind::sequential)
      half.schedule = ScheduleKind::one_f_one_b;
    ways.push_back({fmt::format("{}, parallel.pipeline = {}", tensor, half.pipeline), "half the layers",
                    "a longer bubble is", half});
  }
  return ways;
}

// Rings of half the ranks send (t/2 - 1) / (t/2) of a micro-batch where t ranks sent (t - 1) / t; with twice the
// replicas each has half the micro-batches, with twice the stages half the layers. The first way that fits.
Change fewer_tensor_ranks(const RunConfig& config, int degree, double seconds) {
  Change unpriced{.setting = "a smaller parallel.tensor, with more stages or replicas"};
  if (degree % 2 != 0)
    return unpriced;
  std::string too_large;
  for (const FewerRanks& way : ways_to_fewer_ranks(config)) {
    const LayoutFit fit = fit_of(config, way.layout);
    if (fit.answer == LayoutFit::Answer::too_large) {
      if (too_large.empty())
        too_large = fmt::format("not {}: it {}", way.setting, fit.text);
      continue;
    }
    return {.setting = way.setting,
            .gain_seconds = seconds * (1 - (degree - 2.0) / (2 * (degree - 1.0))),
            .estimated_by = fmt::format(
                "half the tensor ranks, {}; {} not counted; {}{}", way.half, way.not_counted,
                fit.answer == LayoutFit::Answer::fits ? "it fits: " : "whether it fits is not known: ", fit.text)};
  }
  return too_large.empty() ? unpriced : Change{.setting = too_large};
}

// Nothing where the run has no memory on record, or its file is not there any more.
std::optional<Cluster> machine_of(const RunConfig& config) {
  std::optional<Cluster> machine;
  try {
    if (!config.run.cluster.empty())
      machine = cluster_from(config.run.cluster);
  } catch (const Error&) {
    machine.reset();
  }
  if (config.run.device_memory > 0) {
    if (!machine)
      machine.emplace();
    machine->device.memory_bytes = config.run.device_memory;
    machine->reserved_bytes = 0;
  }
  return machine && machine->device.memory_bytes > 0 ? machine : std::nullopt;
}

}  // namespace

void find_tensor(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const int degree = run.config.layout.tensor;
  if (degree == 1)
    return;
  const bool crosses = tensor_crosses_nodes(run);
  Finding finding{
      .cause = crosses ? Cause::tensor_across_nodes : Cause::tensor_exchange, .title = {}, .unit = "s a step"};
  finding.seconds = finding.size = exposed_seconds(run, profile, Axis::tp, Phase::tensor_comm);
  finding.title = fmt::format("{:.4g} s of a step go into exchanges of {} tensor ranks{}", finding.seconds, degree,
                              crosses ? ", which lie on different nodes" : "");
  finding.evidence = {fmt::format("order of the ranks: {}", to_string(run.config.layout.order))};
  for (std::string& line : prediction_evidence(run, Phase::tensor_comm))
    finding.evidence.push_back(std::move(line));
  if (crosses)
    finding.changes = {inside_nodes(run, finding.seconds)};
  else
    finding.changes = {fewer_tensor_ranks(run.config, degree, finding.seconds)};
  findings.push_back(std::move(finding));
}

LayoutFit fit_of(const RunConfig& config, const Layout& layout) {
  if (config.emulate.planned_microbatches > 0)
    return {.text = "the model of a rehearsal is a tiny one"};
  if (!is_priced(layout.precision))
    return {.text = fmt::format("the planner has no {}", to_string(layout.precision))};
  const std::optional<Cluster> machine = machine_of(config);
  if (!machine)
    return {.text = "neither run.device_memory nor run.cluster says how much memory a device has"};
  const PlanProblem problem{
      .model = config.model.shape,
      .cluster = *machine,
      .implementation = espalier_implementation(machine->device.moves_messages, train_settings(config)),
      .sequence_length = config.sequence_length};
  if (std::string reason = why_unlike_nodes(layout, static_cast<int>(config.ranks_per_node)); !reason.empty())
    return {.text = std::move(reason)};
  LayoutPrice price{.layout = with_shards(config, layout)};
  price.memory = memory_of_stages(problem, price.layout);
  price.memory_bytes = peak_bytes(price.memory);
  price.peak_stage = peak_stage(price.memory);
  if (std::string reason = why_too_large(problem, price); !reason.empty())
    return {LayoutFit::Answer::too_large, std::move(reason)};
  return {LayoutFit::Answer::fits, fmt::format("stage {} needs {}, a device has {}", price.peak_stage,
                                               bytes_text(price.memory_bytes), free_text(problem))};
}

}  // namespace espalier
