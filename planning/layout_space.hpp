// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
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
  std::optional<bool> sequence_parallel = {};
  std::optional<ScheduleKind> schedule = {};
  std::optional<bool> data_inside_pipeline = {};
  std::vector<Precision> precisions{Precision::bf16};
  double recompute_share = 1;
  bool tries_context = false;       ///< without a fixed degree: also degrees over 1
  bool only_runnable = false;       ///< only what `train` runs, whatever the model
  bool tries_zero_bubble = true;    ///< without a fixed schedule: also ZB-H1
  bool tries_uneven_chunks = true;  ///< without a fixed number of chunks: also those that do not divide the layers
  bool tries_orders = false;        ///< without a fixed order: also pipeline stages side by side, replicas apart
};

/// Calls visit(key of --fix, member of LayoutSpace, member of PlanLayout) for each choice that a space can fix.
template <class Visit>
void each_choice(const Visit& visit) {
  visit("tensor", &LayoutSpace::tensor, &PlanLayout::tensor);
  visit("context", &LayoutSpace::context, &PlanLayout::context);
  visit("data", &LayoutSpace::data, &PlanLayout::data);
  visit("pipeline", &LayoutSpace::pipeline, &PlanLayout::pipeline);
  visit("virtual_stages", &LayoutSpace::virtual_stages, &PlanLayout::virtual_stages);
  visit("micro_batch", &LayoutSpace::micro_batch, &PlanLayout::micro_batch);
  visit("recompute", &LayoutSpace::recompute, &PlanLayout::recompute);
  visit("zero", &LayoutSpace::zero_stage, &PlanLayout::zero_stage);
  visit("sequence_parallel", &LayoutSpace::sequence_parallel, &PlanLayout::sequence_parallel);
  visit("schedule", &LayoutSpace::schedule, &PlanLayout::schedule);
  visit("order", &LayoutSpace::data_inside_pipeline, &PlanLayout::data_inside_pipeline);
}

/// All layouts of the space whose degrees multiply to the devices, possible or not (why_impossible says). Unless they
/// are fixed, degrees of the tensor axis go up to two nodes and 64, of the context axis up to 16, micro-batches are
/// divisors up to 16 of what a replica has, chunks go up to 8.
std::vector<PlanLayout> enumerate_layouts(const PlanProblem& problem, const LayoutSpace& space);

/// Fixes in `space` what the value of --fix names, a text of parse_plan_layout(). @throws Error (usage).
void fix_choices(LayoutSpace& space, const std::string& text);

/// The fastest of the space that fits, by closed forms. Nothing if none fits.
std::optional<PlanLayout> fastest_layout(const PlanProblem& problem, const LayoutSpace& space);

/// What the space gives and a layout has otherwise: "the batch", "tensor", "precision" (another than those to be
/// tried); empty where it keeps all.
std::vector<std::string> choices_left(const LayoutSpace& space, const PlanLayout& layout);

/// Whether it has layouts with context parallelism.
bool searches_context(const LayoutSpace& space);

}  // namespace espalier
