// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/layout_room.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/error.hpp"
#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layout_limits.hpp"

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

LayoutRoom room_for(const RunSetup& setup, const Layout& layout) {
  if (setup.planned_microbatches > 0)
    return {.text = "the model of a rehearsal is a tiny one"};
  if (!is_priced(layout.precision))
    return {.text = fmt::format("the planner has no {}", to_string(layout.precision))};
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
  price.memory = memory_of_stages(problem, layout);
  price.memory_bytes = peak_bytes(price.memory);
  price.peak_stage = peak_stage(price.memory);
  if (std::string reason = why_too_large(problem, price); !reason.empty())
    return {LayoutRoom::Answer::too_large, std::move(reason)};
  return {LayoutRoom::Answer::fits, fmt::format("stage {} needs {}, a device has {}", price.peak_stage,
                                                bytes_text(price.memory_bytes), room_text(problem))};
}

}  // namespace espalier
