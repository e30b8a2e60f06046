// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "app/console.hpp"
#include "app/print.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/schedule/pipeline_simulator.hpp"
#include "planning/layout_limits.hpp"
#include "training/config/config_warnings.hpp"
#include "training/prediction/measure_layers.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/predict_time.hpp"
#include "training/prediction/predict_traffic.hpp"
#include "training/prediction/require_memory.hpp"

namespace espalier {
namespace {

// Priced with a backward that costs twice a forward, messages free: what the order itself costs.
double bubble_of(const std::vector<PipelineSchedule>& stages) {
  const auto compute = [](int, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::forward:
      case OperationKind::backward_input:
      case OperationKind::backward_weight: return 1.0;
      case OperationKind::backward: return 2.0;
      default: return 0.0;
    }
  };
  return simulate(stages, {.compute = compute}).idle_share;
}

// Priced with the FLOPs of each operation: uneven layers, the head and recomputation count.
double bubble_by_flops(const RunConfig& config, const Layout& layout, const std::vector<PipelineSchedule>& stages) {
  const std::vector<std::vector<ChunkLayers>> chunks = layout.chunks();
  const auto compute = [&](int stage, const Operation& operation) {
    const ChunkLayers& chunk = chunks[static_cast<std::size_t>(stage)].at(static_cast<std::size_t>(operation.chunk));
    return operation_flops(config.model.shape, chunk, operation.kind, config.sequence_length);
  };
  return simulate(stages, {.compute = compute}).idle_share;
}

std::string layers_text(const ChunkLayers& chunk) {
  return chunk.count == 1 ? fmt::format("layer {}", chunk.first)
                          : fmt::format("layers {} to {}", chunk.first, chunk.first + chunk.count - 1);
}

void print_pipeline(const RunConfig& config, const Layout& layout, const std::vector<PipelineSchedule>& schedules) {
  if (layout.pipeline == 1)
    return;
  const Index num_layers = config.model.shape.num_layers;
  const int stages = layout.pipeline;
  const std::vector<std::vector<ChunkLayers>> chunks = layout.chunks();
  for (int stage = 0; stage < stages; ++stage) {
    std::string text;
    for (const ChunkLayers& chunk : chunks[static_cast<std::size_t>(stage)])
      text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", chunk.embedding ? "embedding, " : "",
                          layers_text(chunk), chunk.head ? ", head" : "");
    print_answer("stage {:<7}{}\n", stage, text);
  }
  print_answer("boundaries   each micro-batch crosses {} between stages, forward ({} with layers dealt round-robin)\n",
               boundary_transfers(stage_of_layers(chunks)), boundary_transfers(round_robin_stages(num_layers, stages)));
  print_answer("bubble       {:.1f}% of the schedule if all operations take equally long ({}, {})\n",
               100 * bubble_of(schedules), to_string(layout.schedule),
               counted(layout.num_microbatches(), "micro-batch"));
  print_answer("{:<13}{:.1f}% estimated by FLOPs: layers of each stage, head and recomputation included\n", "",
               100 * bubble_by_flops(config, layout, schedules));
}

// Of the stages' first ranks the one that sends most, axis by axis: as bytes_sent in metrics.jsonl.
void print_traffic(const RunConfig& config, const Layout& layout) {
  std::array<std::uint64_t, num_axes> most{};
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const int rank = layout.mesh().first_rank_of_stage(stage);
    const auto bytes = predict_traffic(config, layout, rank, types_of_run(config));
    for (std::size_t axis = 0; axis < num_axes; ++axis)
      most[axis] = std::max(most[axis], bytes[axis]);
  }
  std::vector<std::string> parts;
  for (const Axis axis : all_axes)
    if (const std::uint64_t bytes = most[static_cast<std::size_t>(axis)]; bytes > 0)
      parts.push_back(fmt::format("{} {}", to_string(axis), bytes_text(bytes)));
  if (!parts.empty())
    print_answer("sends        {} per rank and step\n", fmt::join(parts, ", "));
}

void print_schedule(const Layout& layout, const std::vector<PipelineSchedule>& schedules) {
  constexpr std::size_t shown = 16;
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    std::vector<std::string> names;
    for (const Operation& operation : schedules[stage])
      if (operation.microbatch >= 0 && operation.peer < 0)
        names.push_back(text(operation, layout.virtual_stages > 1));
    const std::string last = names.back();
    const bool cut = names.size() > shown;
    names.resize(std::min(names.size(), shown));
    const std::string who = schedules.size() == 1 ? "each rank" : fmt::format("stage {}", stage);
    print_answer("{:<13}{}: {}{}\n", stage == 0 ? "schedule" : "", who, fmt::join(names, " "),
                 cut ? " ... " + last : std::string());
  }
  print_answer("{:<13}proven for {}{}\n", "", counted(layout.num_devices(), "rank"),
               layout.data == 1        ? ""
               : layout.zero_stage < 2 ? "; gradients are reduced during the last backward"
                                       : "; gradients of layers are reduced during each backward");
}

// Rank by rank, with the gathers and sums of ZeRO-2 and 3 within them; then all in the order in which they would happen
// if all operations took alike.
void print_events(const Layout& layout, const std::vector<PipelineSchedule>& schedules) {
  const bool several = layout.virtual_stages > 1;
  std::vector<const PipelineSchedule*> lists;
  for (int rank = 0; rank < layout.num_devices(); ++rank)
    lists.push_back(&schedules[static_cast<std::size_t>(layout.mesh().coordinates(rank)[Axis::pp])]);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    print_answer("rank {}:\n", rank);
    for (const Operation& operation : *lists[rank])
      print_answer("  {}\n", text(operation, several));
    const int stage = layout.mesh().coordinates(static_cast<int>(rank))[Axis::pp];
    std::vector<std::string> actions;
    for (const UnitAction& action : unit_list(layout, stage, *lists[rank]).actions)
      actions.push_back(text(action));
    if (!actions.empty())
      print_answer("  layers within these: {}\n", fmt::join(actions, ", "));
  }
  const auto one = [](int, const Operation&) { return 1.0; };
  print_answer("all ranks:\n");
  for (const ScheduleEvent& event : run_schedules(lists, layout.mesh(), {.compute = one}).events)
    print_answer("  t={:<4g} rank {}: {}\n", event.start, event.rank,
                 text((*lists[static_cast<std::size_t>(event.rank)])[event.index], several));
}

// Of a rank: run.device_memory, else what a device of run.cluster has free; 0: neither is given.
Index memory_budget(const RunConfig& config) {
  if (config.run.device_memory > 0 || config.run.cluster.empty())
    return config.run.device_memory;
  PlanProblem problem;
  problem.cluster = cluster_of(config);
  return static_cast<Index>(free_bytes(problem));
}

void print_memory(const std::vector<MemoryByCategory>& stages, Index budget) {
  std::vector<std::string> totals;
  for (const MemoryByCategory& stage : stages)
    totals.push_back(bytes_text(stage.total()));
  const MemoryByCategory& peak = stages[static_cast<std::size_t>(peak_stage(stages))];
  print_answer("memory       {} per rank, without scratch memory of libraries{}\n", bytes_text(peak.total()),
               stages.size() > 1 ? fmt::format(" (by stage: {})", fmt::join(totals, ", ")) : std::string());
  for (std::size_t i = 0; i < num_categories; ++i)
    if (peak.bytes[i] > 0)
      print_answer("  {:<13}{:>12}\n", to_string(static_cast<Category>(i)), bytes_text(peak.bytes[i]));
  if (budget > 0)
    print_answer("  {:<13}{:>12}  {}\n", "budget", bytes_text(static_cast<std::size_t>(budget)),
                 peak.total() <= static_cast<std::size_t>(budget) ? "fits" : "DOES NOT FIT");
}

// "2.51e18".
std::string power_of_ten_text(double value) {
  const int exponent = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fmt::format("{:.2f}e{}", value / std::pow(10.0, exponent), exponent);
}

std::string need_text(const RunConfig& config, int ranks) {
  const std::vector<MemoryByCategory> stages = predict_memory(config, make_run_layout(config, ranks));
  return bytes_text(stages[static_cast<std::size_t>(peak_stage(stages))].total());
}

// What each mode would need, on all stages, and each ZeRO stage, where there are replicas.
void print_other_needs(const RunConfig& config, int ranks) {
  std::vector<std::string> needs;
  for (const Recompute mode : all_recompute_modes()) {
    RunConfig other = config;
    other.layout.recompute_per_stage.clear();
    other.layout.recompute = mode;
    needs.push_back(fmt::format("{} {}", to_string(mode), need_text(other, ranks)));
  }
  print_answer("  {:<13}{} per rank\n", "by recompute", fmt::join(needs, ", "));
  if (make_run_layout(config, ranks).data == 1)
    return;
  needs.clear();
  for (int stage = 0; stage <= 3; ++stage) {
    RunConfig other = config;
    other.layout.zero_stage = stage;
    needs.push_back(fmt::format("{} {}", stage, need_text(other, ranks)));
  }
  print_answer("  {:<13}{} per rank\n", "by ZeRO", fmt::join(needs, ", "));
}

}  // namespace

int dry_run(RunConfig config, int ranks, bool events) {
  require_cluster(config);
  if (config.layout.layers.empty())
    config.layout.layers = stored_layers(config);  // a resumed run keeps its stages
  const Layout layout = make_run_layout(config, ranks);
  const std::vector<PipelineSchedule> schedules = make_schedules(config, layout);
  require_proven(config, layout, schedules);
  if (events) {
    print_events(layout, schedules);
    return static_cast<int>(ExitCode::ok);
  }
  const ModelConfig& shape = config.model.shape;
  const int replicas = layout.data;
  const double flops =
      training_flops_per_token(shape, config.sequence_length) * static_cast<double>(config.tokens_per_step());
  print_answer("model        {}: {} parameters, {} x {}, {}, vocabulary {}\n", config.model_name(),
               count_text(static_cast<double>(num_parameters(shape))), counted(shape.num_layers, "layer"),
               counted(shape.hidden_size, "channel"), counted(shape.num_heads, "head"), shape.vocab_size);
  print_answer("mesh         {}: {}\n", counted(ranks, "rank"), layout.short_text());
  print_answer("batch        {} of {} per step = {} of {} on {}{}\n", counted(config.layout.global_batch, "sequence"),
               counted(config.sequence_length, "token"), counted(layout.num_microbatches(), "micro-batch"),
               config.layout.micro_batch, replicas > 1 ? "each of " : "", counted(replicas, "replica"));
  print_answer("run          {}, {} tokens, {} FLOPs per step\n", counted(config.total_steps(), "step"),
               count_text(static_cast<double>(config.total_steps() * config.tokens_per_step())),
               power_of_ten_text(flops));
  print_pipeline(config, layout, schedules);
  print_traffic(config, layout);
  print_schedule(layout, schedules);
  const std::vector<MemoryByCategory> memory = predict_memory(config, layout);
  print_memory(memory, memory_budget(config));
  print_other_needs(config, ranks);
  for (const std::string& warning : config_warnings(config, ranks))
    print_answer("warning      {}\n", warning);
  print_answer(
      "not checked  token files, run.directory, checkpoints, the memory of the machine: a launch checks them\n");
  require_memory(config, layout);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace espalier
