// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_layout.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/error.hpp"
#include "io/units.hpp"
#include "planning/layout_limits.hpp"
#include "planning/layout_memory.hpp"

namespace espalier {
namespace {

// Nothing where the run tells of no memory, or its file is not there any more.
std::optional<Cluster> machine_of(const RunSetup& setup) {
  std::optional<Cluster> machine;
  try {
    if (!setup.cluster.empty())
      machine = cluster_from(setup.cluster);
  } catch (const Error&) {
    machine.reset();
  }
  if (setup.device_memory > 0) {
    if (!machine)
      machine.emplace();
    machine->device.memory_bytes = setup.device_memory;
    machine->reserved_bytes = 0;
  }
  return machine && machine->device.memory_bytes > 0 ? machine : std::nullopt;
}

}  // namespace

PlanLayout recorded_layout(const RunSetup& setup) {
  PlanLayout layout;
  layout.tensor = setup.mesh.degree(Axis::tp);
  layout.data = setup.mesh.degree(Axis::dp);
  layout.pipeline = setup.stages();
  layout.virtual_stages = static_cast<int>(setup.virtual_stages);
  layout.micro_batch = setup.micro_batch_size;
  layout.global_batch = setup.global_batch_size;
  layout.recompute = parse_recompute(setup.recompute).value_or(Recompute::none);
  layout.zero_stage = static_cast<int>(setup.zero_stage);
  layout.sequence_parallel = setup.sequence_parallel;
  layout.precision = parse_precision(setup.compute).value_or(Precision::fp32);
  layout.schedule = parse_schedule_kind(setup.schedule).value_or(ScheduleKind::one_f_one_b);
  layout.blocks_given = setup.layers_per_stage;
  return layout;
}

LayoutRoom room_for(const RunSetup& setup, const PlanLayout& layout) {
  if (setup.planned_microbatches > 0)
    return {.text = "the model of a rehearsal is a tiny one"};
  if (!parse_precision(setup.compute))
    return {.text = fmt::format("the planner has no {}", setup.compute)};
  const std::optional<Cluster> machine = machine_of(setup);
  if (!machine)
    return {.text = "neither run.device_memory nor run.cluster tells what a device has"};
  PlanProblem problem{.model = setup.shape,
                      .cluster = *machine,
                      .implementation = espalier_implementation(machine->device.moves_messages),
                      .sequence_length = setup.sequence_length};
  if (setup.attention == "own")
    problem.implementation.cudnn_attention = false;
  LayoutPrice price{.layout = layout};
  price.memory = layout_memory(problem.model, layout, problem.implementation, problem.sequence_length);
  price.memory_bytes = peak_bytes(price.memory);
  price.peak_stage = peak_stage(price.memory);
  if (std::string reason = why_too_large(problem, price); !reason.empty())
    return {LayoutRoom::Answer::too_large, std::move(reason)};
  return {LayoutRoom::Answer::fits, fmt::format("stage {} needs {}, a device has {}", price.peak_stage,
                                                bytes_text(price.memory_bytes), room_text(problem))};
}

}  // namespace espalier
