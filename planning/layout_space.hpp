// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// What is fixed of a layout; everything else is open.
struct LayoutSpace {
  int num_devices = 1;
  Index global_batch = 1;  ///< sequences
  std::optional<int> tensor = {};
  std::optional<int> context = {};
  std::optional<int> data = {};
  std::optional<int> pipeline = {};
  std::optional<int> virtual_stages = {};
  std::optional<Index> micro_batch = {};
  std::optional<Recompute> recompute = {};
  std::optional<int> zero_stage = {};
  std::optional<ShardOver> shard_over = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<ScheduleKind> schedule = {};
  std::optional<AxisOrder> order = {};
  std::vector<Precision> precisions{Precision::bf16};
  double most_step_seconds = 0;  ///< that are wanted; 0: none are
  bool tries_context = false;    ///< without a fixed degree: also degrees over 1
  bool only_runnable = false;    ///< only what `train` runs, whatever the model
  bool tries_orders = false;     ///< without a fixed order: also pipeline stages side by side, replicas apart
};

/// Calls visit(key of --fix, member of LayoutSpace, member of Layout) for each choice that a space can fix.
template <class Visit>
void each_choice(const Visit& visit) {
  visit("tensor", &LayoutSpace::tensor, &Layout::tensor);
  visit("context", &LayoutSpace::context, &Layout::context);
  visit("data", &LayoutSpace::data, &Layout::data);
  visit("pipeline", &LayoutSpace::pipeline, &Layout::pipeline);
  visit("virtual_stages", &LayoutSpace::virtual_stages, &Layout::virtual_stages);
  visit("micro_batch", &LayoutSpace::micro_batch, &Layout::micro_batch);
  visit("recompute", &LayoutSpace::recompute, &Layout::recompute);
  visit("zero_stage", &LayoutSpace::zero_stage, &Layout::zero_stage);
  visit("shard_over", &LayoutSpace::shard_over, &Layout::shard_over);
  visit("sequence_parallel", &LayoutSpace::sequence_parallel, &Layout::sequence_parallel);
  visit("schedule", &LayoutSpace::schedule, &Layout::schedule);
  visit("order", &LayoutSpace::order, &Layout::order);
}

/// Degrees of the ranks: tensor, context, data, pipeline.
using MeshDegrees = std::tuple<int, int, int, int>;
inline MeshDegrees degrees_of(const Layout& layout) {
  return {layout.tensor, layout.context, layout.data, layout.pipeline};
}

/// All layouts of the space whose degrees multiply to the devices, possible or not (why_impossible says). Unless they
/// are fixed, degrees of the tensor axis go up to two nodes and 64, of the context axis up to 16, micro-batches are
/// divisors up to 16 of what a replica has, chunks go up to 8.
std::vector<Layout> enumerate_layouts(const PlanProblem& problem, const LayoutSpace& space);

/// Fixes in `space` what the value of --fix names, a text of parse_layout(). @throws Error (usage).
void fix_choices(LayoutSpace& space, const std::string& text);

/// The fastest layout that fits, by closed forms. Nothing if none fits.
std::optional<Layout> fastest_layout(const PlanProblem& problem, const std::vector<Layout>& layouts);

/// What the space gives and a layout has otherwise: "the batch", "tensor", "precision" (another than those to be
/// tried); empty where it keeps all.
std::vector<std::string> choices_left(const LayoutSpace& space, const Layout& layout);

/// Whether it has layouts with context parallelism.
bool searches_context(const LayoutSpace& space);

}  // namespace espalier
