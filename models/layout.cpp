// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace espalier {
namespace {

// "recompute full", "recompute full on stage 0, selective on stages 1, 3"; empty where nothing is.
std::string recompute_text(const Layout& layout) {
  std::string text;
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    std::vector<int> which;
    for (int stage = 0; stage < layout.pipeline; ++stage)
      if (layout.recompute_of(stage) == mode)
        which.push_back(stage);
    if (which.empty())
      continue;
    text += fmt::format("{}{}", text.empty() ? "recompute " : ", ", to_string(mode));
    if (static_cast<int>(which.size()) < layout.pipeline)
      text += fmt::format(" on stage{} {}", which.size() > 1 ? "s" : "", fmt::join(which, ", "));
  }
  return text;
}

}  // namespace

Recompute Layout::recompute_of(int stage) const {
  return recompute_per_stage.empty() ? recompute : recompute_per_stage.at(static_cast<std::size_t>(stage));
}

int Layout::part_of(int stage, int chunk) const {
  if (schedule == ScheduleKind::zero_bubble_v && chunk == 1)
    return 2 * pipeline - 1 - stage;
  return part_of_chunk(stage, chunk, pipeline);
}

int Layout::stage_of_part(int part) const {
  const int stage = part % pipeline;
  return part_of(stage, part / pipeline) == part ? stage : 2 * pipeline - 1 - part;  // else of zero_bubble_v's way back
}

std::vector<Index> Layout::layers_of_stages() const {
  std::vector<Index> sums(static_cast<std::size_t>(pipeline));
  for (int part = 0; part < num_parts(); ++part)
    sums[static_cast<std::size_t>(stage_of_part(part))] += layers[static_cast<std::size_t>(part)];
  return sums;
}

bool Layout::data_inside_pipeline() const {
  return std::ranges::find(order, Axis::dp) < std::ranges::find(order, Axis::pp);
}

PipelineShape Layout::pipeline_shape(bool ties_embeddings) const {
  return {.kind = schedule,
          .stages = pipeline,
          .chunks = virtual_stages,
          .microbatches = static_cast<int>(num_microbatches()),
          .gathers_weights = zero_stage > 0,
          .ties_embeddings = ties_embeddings};
}

std::vector<std::vector<ChunkLayers>> Layout::chunks() const {
  std::vector<std::vector<ChunkLayers>> stages = partition_layers(layers, pipeline, virtual_stages);
  if (schedule == ScheduleKind::zero_bubble_v && virtual_stages == 2)
    for (int stage = 0; stage < pipeline / 2; ++stage)  // the way back, see part_of()
      std::swap(stages[static_cast<std::size_t>(stage)][1], stages[static_cast<std::size_t>(pipeline - 1 - stage)][1]);
  for (int stage = 0; stage < pipeline; ++stage)
    for (ChunkLayers& chunk : stages[static_cast<std::size_t>(stage)])
      chunk.recompute = recompute_of(stage);
  return stages;
}

std::string Layout::text() const {
  std::string text = fmt::format("tensor {}{} x data {} x pipeline {}", tensor,
                                 context > 1 ? fmt::format(" x context {}", context) : "", data, pipeline);
  if (pipeline > 1)
    text += virtual_stages > 1 ? fmt::format(" ({}, {} virtual stages)", to_string(schedule), virtual_stages)
                               : fmt::format(" ({})", to_string(schedule));
  const std::string recomputed = recompute_text(*this);
  text += fmt::format(
      ", micro-batch {}, {}, ZeRO-{}{}{}, {}", micro_batch, recomputed.empty() ? "recompute none" : recomputed,
      zero_stage,
      zero_stage > 0 && shard_replicas > 0 ? fmt::format(" over {} replicas of a node", shard_replicas) : "",
      sequence_parallel ? ", sequence parallel" : "", to_string(precision));
  if (!data_inside_pipeline() && pipeline > 1 && data > 1)
    text += ", stages on neighbouring ranks";
  return text;
}

std::string Layout::short_text() const {
  std::string text = mesh().text();
  if (pipeline > 1)
    text += fmt::format(", {}", to_string(schedule));
  if (virtual_stages > 1)
    text += fmt::format(" x {} virtual stages", virtual_stages);
  if (sequence_parallel)
    text += ", sequence parallel";
  if (zero_stage > 0)
    text += fmt::format(", ZeRO-{}{}", zero_stage, zero_stage == 3 && keep_gathered ? ", keep_gathered" : "");
  if (zero_stage > 0 && shard_replicas > 0)
    text += fmt::format(" over {} replicas of a node", shard_replicas);
  if (const std::string recomputed = recompute_text(*this); !recomputed.empty())
    text += ", " + recomputed;
  return text;
}

}  // namespace espalier
