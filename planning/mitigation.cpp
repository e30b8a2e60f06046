// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/mitigation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planning/runnable.hpp"

namespace espalier {
namespace {

struct Change {
  std::string text;
  PlanLayout layout;
};

std::optional<Precision> next_lower(const Accelerator& device, Precision precision) {
  if (precision == Precision::fp32 || precision == Precision::tf32)
    return device.has(Precision::bf16) ? Precision::bf16 : Precision::fp16;
  return precision == Precision::fp8 ? std::nullopt : std::optional(Precision::fp8);
}

// Of one choice, the rest as it is.
std::vector<Change> single_changes(const PlanProblem& problem, const PlanLayout& now) {
  std::vector<Change> changes;
  const auto change = [&](std::string text, auto edit) {
    PlanLayout other = now;
    edit(other);
    changes.push_back({std::move(text), other});
  };
  const auto micro_batch = [&](Index size) {
    change(fmt::format("micro-batches of {} instead of {} (batch.micro_batch_size)", size, now.micro_batch),
           [size](PlanLayout& other) { other.micro_batch = size; });
  };
  if (now.micro_batch % 2 == 0)
    micro_batch(now.micro_batch / 2);
  micro_batch(2 * now.micro_batch);
  change(fmt::format("a global batch of {} sequences instead of {} (batch.global_batch_size; other steps, other "
                     "learning rate)",
                     2 * now.global_batch, now.global_batch),
         [](PlanLayout& other) { other.global_batch *= 2; });
  if (now.pipeline > 1 && now.virtual_stages == 1)
    change("2 chunks a stage, interleaved (parallel.virtual_stages)", [](PlanLayout& other) {
      other.virtual_stages = 2;
      other.schedule = PlanSchedule::interleaved;
    });
  const auto chunks = [&](int count) {
    change(fmt::format("{} instead of {} chunks a stage (parallel.virtual_stages)", count, now.virtual_stages),
           [count](PlanLayout& other) {
             other.virtual_stages = count;
             if (count == 1)
               other.schedule = PlanSchedule::one_f_one_b;
           });
  };
  if (now.virtual_stages > 1)
    chunks(2 * now.virtual_stages);
  if (now.virtual_stages % 2 == 0)
    chunks(now.virtual_stages / 2);
  if (now.pipeline > 1 && now.schedule == PlanSchedule::one_f_one_b)
    change("the zero-bubble schedule (parallel.schedule)",
           [](PlanLayout& other) { other.schedule = PlanSchedule::zero_bubble; });
  if (now.recompute != Recompute::none)
    change("no recomputation (parallel.recompute)", [](PlanLayout& other) { other.recompute = Recompute::none; });
  if (now.recompute == Recompute::full)
    change("selective recomputation (parallel.recompute)",
           [](PlanLayout& other) { other.recompute = Recompute::selective; });
  if (now.tensor > 1 && !now.sequence_parallel)
    change("sequence parallelism (parallel.sequence_parallel)",
           [](PlanLayout& other) { other.sequence_parallel = true; });
  const auto zero = [&](int stage) {
    change(fmt::format("ZeRO-{} instead of ZeRO-{} (parallel.zero_stage)", stage, now.zero_stage),
           [stage](PlanLayout& other) { other.zero_stage = stage; });
  };
  if (now.zero_stage == 0 && now.data > 1)
    zero(1);
  if (now.zero_stage > 0)
    zero(now.zero_stage - 1);
  if (now.pipeline > 1 && now.data > 1)
    change(fmt::format("{} side by side (parallel.order)", now.data_inside_pipeline ? "stages" : "replicas"),
           [](PlanLayout& other) { other.data_inside_pipeline = !other.data_inside_pipeline; });
  if (const std::optional<Precision> lower = next_lower(problem.cluster.device, now.precision))
    change(fmt::format("products in {} instead of {}{}", to_string(*lower), to_string(now.precision),
                       *lower == Precision::fp8 ? " (priced only: train has no fp8 yet)" : " (precision.compute)"),
           [&](PlanLayout& other) { other.precision = *lower; });
  return changes;
}

// One degree halved, another doubled; the other choices are those that suit the new degrees best.
std::vector<Change> changes_of_degrees(const PlanProblem& problem, const LayoutSpace& space, const PlanLayout& now) {
  constexpr std::array<std::pair<int PlanLayout::*, std::optional<int> LayoutSpace::*>, 3> degrees{
      {{&PlanLayout::tensor, &LayoutSpace::tensor},
       {&PlanLayout::data, &LayoutSpace::data},
       {&PlanLayout::pipeline, &LayoutSpace::pipeline}}};
  std::vector<Change> changes;
  for (const auto& halved : degrees)
    for (const auto& doubled : degrees) {
      if (halved == doubled || now.*halved.first % 2 != 0)
        continue;
      LayoutSpace there = space;
      there.context = now.context;
      there.precisions = {now.precision};
      there.global_batch = now.global_batch;
      there.num_devices = now.num_devices();
      for (const auto& [of_layout, of_space] : degrees)
        there.*of_space = now.*of_layout;
      there.*halved.second = now.*halved.first / 2;
      there.*doubled.second = 2 * now.*doubled.first;
      if (const std::optional<PlanLayout> layout = fastest_layout(problem, there))
        changes.push_back({layout->text(), *layout});
    }
  return changes;
}

// What `train` lacks matters where the layout at hand is one that it runs.
std::string why_not_tried(const PlanProblem& problem, const LayoutPrice& option, const PlanLayout& now) {
  if (std::string reason = why_too_large(problem, option); !reason.empty())
    return reason;
  return why_not_runnable(problem, now).empty() ? why_not_runnable(problem, option.layout) : "";
}

Mitigation mitigation_of(std::string change, LayoutPrice price, const LayoutPrice& now) {
  const Bottleneck limit = bottleneck(now);
  const double seconds = comparable_seconds(price, now, limit.phases);
  const double gain = price.tokens_per_second / now.tokens_per_second - 1;
  const double saved = (limit.seconds(now) - seconds) / now.step_seconds;
  return {.change = std::move(change), .price = std::move(price), .gain = gain, .saved = saved, .obstacle = {}};
}

// `train` rounds what it sends, and keeps and adds up as before: times change, memory does not.
std::optional<LayoutPrice> price_with_short_gradients(const PlanProblem& problem, const LayoutPrice& now) {
  if (activation_bytes(now.layout.precision) != 2 || problem.implementation.gradient_bytes <= 2 ||
      now[PlanPhase::data_comm] <= 0)
    return std::nullopt;
  PlanProblem rounded = problem;
  rounded.implementation.gradient_bytes = 2;
  LayoutPrice price = price_layout(rounded, now.layout);
  price.memory = now.memory;
  price.memory_bytes = now.memory_bytes;
  price.fullest_stage = now.fullest_stage;
  return price;
}

// The axis whose messages a phase waits for.
std::optional<AxisPlacement> axis_of(PlanPhase phase, const PlanLayout& layout) {
  if (phase == PlanPhase::tensor_comm)
    return layout.tensor > 1 ? layout.tensor_axis() : layout.context_axis();
  if (phase == PlanPhase::pipeline_comm)
    return layout.pipeline_axis();
  if (phase == PlanPhase::data_comm)  // of one replica: first and last stage sum the gradients of their table
    return layout.data * layout.context > 1 ? layout.data_axis() : layout.pipeline_axis();
  return std::nullopt;
}

}  // namespace

std::string Bottleneck::name() const { return phases.size() > 1 ? "forward and backward" : to_string(phases.front()); }

double Bottleneck::seconds(const LayoutPrice& price) const {
  double sum = 0;
  for (const PlanPhase phase : phases)
    sum += price[phase];
  return sum;
}

PlanPhase longest_beside_compute(const LayoutPrice& price) {
  constexpr std::array<PlanPhase, 7> candidates{PlanPhase::recompute,     PlanPhase::bubble,    PlanPhase::tensor_comm,
                                                PlanPhase::pipeline_comm, PlanPhase::data_comm, PlanPhase::optimizer,
                                                PlanPhase::other};
  return *std::max_element(candidates.begin(), candidates.end(),
                           [&](PlanPhase a, PlanPhase b) { return price[a] < price[b]; });
}

Bottleneck bottleneck(const LayoutPrice& price) {
  const PlanPhase longest = longest_beside_compute(price);
  if (price[longest] < bottleneck_share * price.step_seconds)
    return {{PlanPhase::forward, PlanPhase::backward}};
  return {{longest}};
}

double comparable_seconds(const LayoutPrice& price, const LayoutPrice& now, const std::vector<PlanPhase>& phases) {
  return Bottleneck{phases}.seconds(price) * static_cast<double>(now.layout.global_batch) /
         static_cast<double>(price.layout.global_batch);
}

std::vector<Mitigation> mitigations(const PlanProblem& problem, const LayoutSpace& space, const LayoutPrice& price) {
  std::vector<Mitigation> found;
  std::vector<Change> changes = single_changes(problem, price.layout);
  for (Change& change : changes_of_degrees(problem, space, price.layout))
    changes.push_back(std::move(change));
  for (Change& change : changes) {
    if (!why_impossible(problem, change.layout).empty())
      continue;
    if (leaves_fixed_choices(space, change.layout))
      change.text += ", against --fix";
    found.push_back(mitigation_of(std::move(change.text), price_layout(problem, change.layout), price));
    found.back().obstacle = why_not_tried(problem, found.back().price, price.layout);
  }
  if (std::optional<LayoutPrice> rounded = price_with_short_gradients(problem, price))
    found.push_back(mitigation_of("gradients that travel in 16 bits (precision.gradient_reduction = \"compute\")",
                                  std::move(*rounded), price));
  std::stable_sort(found.begin(), found.end(), [](const Mitigation& a, const Mitigation& b) {
    return std::pair(!a.answers(), -a.gain) < std::pair(!b.answers(), -b.gain);
  });
  return found;
}

std::optional<Mitigation> better_machine(const PlanProblem& problem, const LayoutPrice& price) {
  PlanProblem better = problem;
  const PlanPhase phase = bottleneck(price).phases.front();
  if (const std::optional<AxisPlacement> axis = axis_of(phase, price.layout)) {
    const bool crosses = crosses_nodes(problem.cluster, *axis);
    LinkTier& link = crosses ? better.cluster.network : better.cluster.node;
    link.bandwidth *= 2;
    link.alone *= 2;
    return mitigation_of(fmt::format("twice the bandwidth {}", crosses ? "between nodes" : "inside the node"),
                         price_layout(better, price.layout), price);
  }
  if (phase != PlanPhase::forward)
    return std::nullopt;
  PlanLayout layout = price.layout;
  layout.data *= 2;
  if (layout.num_microbatches() == 0 && layout.micro_batch % 2 == 0)
    layout.micro_batch /= 2;
  if (layout.num_devices() > most_devices)
    return std::nullopt;
  better.cluster = with_devices(problem.cluster, layout.num_devices());
  if (!problems(better.cluster).empty() || !why_impossible(better, layout).empty())
    return std::nullopt;
  return mitigation_of("twice the devices (as twice the replicas)", price_layout(better, layout), price);
}

}  // namespace espalier
