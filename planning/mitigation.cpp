// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/mitigation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "planning/collective_time.hpp"
#include "planning/layout_limits.hpp"
#include "planning/runnable.hpp"

namespace espalier {
namespace {

struct TriedChange {
  std::string text;
  Layout layout;
};

std::optional<Precision> next_lower(const Accelerator& device, Precision precision) {
  if (precision == Precision::fp32 || precision == Precision::tf32)
    return device.has(Precision::bf16) ? Precision::bf16 : Precision::fp16;
  return precision == Precision::fp8 ? std::nullopt : std::optional(Precision::fp8);
}

// Changes of one choice, the rest as it is; of two where the one makes room for the other, or takes what it leaves.
std::vector<TriedChange> small_changes(const PlanProblem& problem, const Layout& now) {
  std::vector<TriedChange> changes;
  const auto change = [&](std::string text, const auto& edit) {
    changes.push_back({std::move(text), now});
    edit(changes.back().layout);
  };
  const auto micro_batch = [&](Index size) {
    change(fmt::format("micro-batches of {} instead of {} (batch.micro_batch_size)", size, now.micro_batch),
           [&](Layout& other) { other.micro_batch = size; });
  };
  const auto micro_batch_with = [&](Index size, Recompute mode) {
    change(fmt::format("micro-batches of {} instead of {} with {} recomputation (batch.micro_batch_size, "
                       "parallel.recompute)",
                       size, now.micro_batch, mode == Recompute::none ? "no" : to_string(mode)),
           [&](Layout& other) {
             other.micro_batch = size;
             other.recompute = mode;
           });
  };
  const auto virtual_stages = [&](int count) {
    change(
        fmt::format("{} instead of {} virtual stages per stage (parallel.virtual_stages)", count, now.virtual_stages),
        [&](Layout& other) {
          other.virtual_stages = count;
          if (count == 1)
            other.schedule = ScheduleKind::one_f_one_b;
        });
  };
  const auto zero_stage = [&](int stage) {
    change(fmt::format("ZeRO-{} instead of ZeRO-{} (parallel.zero_stage)", stage, now.zero_stage),
           [&](Layout& other) { other.zero_stage = stage; });
  };

  if (now.micro_batch % 2 == 0)
    micro_batch(now.micro_batch / 2);
  micro_batch(2 * now.micro_batch);
  change(fmt::format("a global batch of {} sequences instead of {} (batch.global_batch_size; other steps, other "
                     "learning rate)",
                     2 * now.global_batch, now.global_batch),
         [](Layout& other) { other.global_batch *= 2; });
  if (now.pipeline > 1 && now.virtual_stages == 1)
    change("2 virtual stages per stage, interleaved (parallel.virtual_stages)", [](Layout& other) {
      other.virtual_stages = 2;
      other.schedule = ScheduleKind::interleaved;
    });
  if (now.virtual_stages > 1)
    virtual_stages(2 * now.virtual_stages);
  if (now.virtual_stages % 2 == 0)
    virtual_stages(now.virtual_stages / 2);
  if (now.pipeline > 1 && now.schedule == ScheduleKind::one_f_one_b)
    change("the zero-bubble schedule (parallel.schedule)",
           [](Layout& other) { other.schedule = ScheduleKind::zero_bubble; });
  if (now.recompute != Recompute::none)
    change("no recomputation (parallel.recompute)", [](Layout& other) { other.recompute = Recompute::none; });
  if (now.recompute == Recompute::full)
    change("selective recomputation (parallel.recompute)",
           [](Layout& other) { other.recompute = Recompute::selective; });
  for (const Recompute mode : all_recompute_modes()) {  // larger micro-batches where more is recomputed; smaller ones
    if (mode > now.recompute)                           // of which more may be kept
      micro_batch_with(2 * now.micro_batch, mode);
    if (mode < now.recompute && now.micro_batch % 2 == 0)
      micro_batch_with(now.micro_batch / 2, mode);
  }
  if (now.tensor > 1 && !now.sequence_parallel)
    change("sequence parallelism (parallel.sequence_parallel)", [](Layout& other) { other.sequence_parallel = true; });
  if (now.zero_stage == 0 && now.gradient_ranks() > 1)
    zero_stage(1);
  if (now.zero_stage > 0)
    zero_stage(now.zero_stage - 1);
  if (now.pipeline > 1 && now.data > 1)
    change(fmt::format("{} on neighbouring ranks (parallel.order)", now.data_inside_pipeline() ? "stages" : "replicas"),
           [](Layout& other) { other.order = other.data_inside_pipeline() ? pipeline_first_order : data_first_order; });
  if (const std::optional<Precision> lower = next_lower(problem.cluster.device, now.precision))
    change(fmt::format("matmuls in {} instead of {} (precision.compute)", to_string(*lower), to_string(now.precision)),
           [&](Layout& other) { other.precision = *lower; });
  return changes;
}

// A degree of a layout, and where a space fixes it.
struct Degree {
  int Layout::*of_layout;
  std::optional<int> LayoutSpace::*of_space;
};
constexpr std::array<Degree, 4> degrees{{{&Layout::tensor, &LayoutSpace::tensor},
                                         {&Layout::context, &LayoutSpace::context},
                                         {&Layout::data, &LayoutSpace::data},
                                         {&Layout::pipeline, &LayoutSpace::pipeline}}};

// One degree halved, another doubled; the other choices are those that suit the new degrees best. In place of a layout
// that `train` runs come others that it runs, but for context parallelism, which it has not.
std::vector<TriedChange> changes_of_degrees(const PlanProblem& problem, const LayoutSpace& space, const Layout& now) {
  LayoutSpace there = space;
  there.precisions = {now.precision};
  there.global_batch = now.global_batch;
  there.num_devices = now.num_devices();
  const bool runs = why_not_runnable(problem, now).empty();
  std::vector<TriedChange> changes;
  for (const Degree& halved : degrees)
    for (const Degree& doubled : degrees) {
      if (&halved == &doubled || now.*halved.of_layout % 2 != 0)
        continue;
      for (const Degree& degree : degrees)
        there.*degree.of_space = now.*degree.of_layout;
      there.*halved.of_space = now.*halved.of_layout / 2;
      there.*doubled.of_space = 2 * now.*doubled.of_layout;
      there.only_runnable = space.only_runnable || (runs && there.context == 1);
      if (const std::optional<Layout> layout = fastest_layout(problem, enumerate_layouts(problem, there)))
        changes.push_back({layout->text(), *layout});
    }
  return changes;
}

std::string condition_of(const LayoutSpace& space, const Layout& layout) {
  const std::vector<std::string> left = choices_left(space, layout);
  return left.empty() ? "" : fmt::format("if {} may change", fmt::join(left, " and "));
}

Mitigation mitigation_of(std::string change, LayoutPrice price, const LayoutPrice& now) {
  const Bottleneck limit = bottleneck(now);
  const double seconds = comparable_seconds(price, now, limit.seconds(price));
  const double gain = price.tokens_per_second / now.tokens_per_second - 1;
  const double saved = (limit.seconds(now) - seconds) / now.step_seconds;
  return {.change = std::move(change),
          .price = std::move(price),
          .gain = gain,
          .saved = saved,
          .obstacle = {},
          .condition = {},
          .lacks = {}};
}

// `train` rounds what it sends, and keeps and adds up as before.
std::optional<LayoutPrice> price_with_short_gradients(const PlanProblem& problem, const LayoutPrice& now) {
  const TrainingTypes types = types_of_program(problem.implementation, now.layout.precision);
  if (!types.has_master_weights() || types.wire || now[Phase::data_comm] <= 0)
    return std::nullopt;
  PlanProblem rounded = problem;
  rounded.implementation.gradient_bytes = 2;
  return price_layout(rounded, now.layout);
}

// The axes whose messages are waited for.
std::vector<AxisPlacement> axes_of(const Bottleneck& limit, const Layout& layout) {
  std::vector<AxisPlacement> axes;
  if (limit.kind != Bottleneck::Kind::phase)
    return axes;
  const Phase phase = limit.phase;
  if (phase == Phase::tensor_comm && layout.tensor > 1)
    axes.push_back(tensor_axis(layout));
  if (phase == Phase::tensor_comm && layout.context > 1)
    axes.push_back(context_axis(layout));
  if (phase == Phase::pipeline_comm)
    axes.push_back(pipeline_axis(layout));
  if (phase == Phase::data_comm)  // of one replica: first and last stage sum the gradients of their table
    axes.push_back(layout.gradient_ranks() > 1 ? data_axis(layout) : pipeline_axis(layout));
  return axes;
}

Mitigation with_faster_links(const PlanProblem& problem, const LayoutPrice& price, bool between_nodes) {
  PlanProblem better = problem;
  LinkTier& link = between_nodes ? better.cluster.network : better.cluster.node;
  link.bandwidth *= 2;
  link.alone *= 2;
  return mitigation_of(fmt::format("twice the bandwidth {}", between_nodes ? "between nodes" : "inside the node"),
                       price_layout(better, price.layout), price);
}

std::optional<Mitigation> with_more_devices(const PlanProblem& problem, const LayoutPrice& price) {
  PlanProblem better = problem;
  Layout layout = price.layout;
  layout.data *= 2;
  if (layout.num_microbatches() == 0 && layout.micro_batch % 2 == 0)
    layout.micro_batch /= 2;
  if (layout.num_devices() > most_devices)
    return std::nullopt;
  better.cluster = with_devices(problem.cluster, layout.num_devices());
  if (!problems(better.cluster).empty() || !why_impossible(better, layout).empty())
    return std::nullopt;
  return mitigation_of("twice the devices (twice the replicas)", price_layout(better, layout), price);
}

}  // namespace

std::string Bottleneck::name() const {
  if (kind == Kind::compute)
    return "forward and backward";
  return kind == Kind::recompute ? "recompute" : to_string(phase);
}

double Bottleneck::seconds(const LayoutPrice& price) const {
  if (kind == Kind::compute)
    return price[Phase::forward] + price[Phase::backward] - price.recompute_seconds;
  return kind == Kind::recompute ? price.recompute_seconds : price[phase];
}

Bottleneck longest_beside_compute(const LayoutPrice& price) {
  Bottleneck longest{Bottleneck::Kind::recompute};
  for (const Phase phase :
       {Phase::bubble, Phase::tensor_comm, Phase::pipeline_comm, Phase::data_comm, Phase::optimizer, Phase::other})
    if (price[phase] > longest.seconds(price))
      longest = {Bottleneck::Kind::phase, phase};
  return longest;
}

Bottleneck bottleneck(const LayoutPrice& price) {
  const Bottleneck longest = longest_beside_compute(price);
  return longest.seconds(price) < bottleneck_share * price.step_seconds ? Bottleneck{} : longest;
}

double comparable_seconds(const LayoutPrice& price, const LayoutPrice& now, double seconds) {
  return seconds * static_cast<double>(now.layout.global_batch) / static_cast<double>(price.layout.global_batch);
}

std::vector<Mitigation> mitigations(const PlanProblem& problem, const LayoutSpace& space, const LayoutPrice& price) {
  std::vector<Mitigation> found;
  std::vector<TriedChange> changes = small_changes(problem, price.layout);
  for (TriedChange& change : changes_of_degrees(problem, space, price.layout))
    changes.push_back(std::move(change));
  for (TriedChange& change : changes) {
    if (!why_impossible(problem, change.layout).empty() ||
        (space.only_runnable && !why_not_runnable(change.layout).empty()))
      continue;
    Mitigation each = mitigation_of(std::move(change.text), price_layout(problem, change.layout), price);
    each.obstacle = why_too_large(problem, each.price);
    each.condition = condition_of(space, change.layout);
    each.lacks = what_else_lacks(change.layout, price.layout);
    found.push_back(std::move(each));
  }
  if (std::optional<LayoutPrice> rounded = price_with_short_gradients(problem, price))
    found.push_back(mitigation_of("gradients sent in 16 bits (precision.gradient_reduction = \"compute\")",
                                  std::move(*rounded), price));
  const auto order = [](const Mitigation& each) {
    return std::tuple(!each.relieves_bottleneck(), !each.helps(), !each.lacks.empty(), !each.condition.empty(),
                      -each.gain);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Mitigation& a, const Mitigation& b) { return order(a) < order(b); });
  return found;
}

std::optional<Mitigation> better_machine(const PlanProblem& problem, const LayoutPrice& price) {
  const Bottleneck limit = bottleneck(price);
  if (limit.kind == Bottleneck::Kind::compute)
    return with_more_devices(problem, price);
  std::optional<Mitigation> best;
  for (const AxisPlacement& axis : axes_of(limit, price.layout))
    if (Mitigation each = with_faster_links(problem, price, crosses_nodes(problem.cluster, axis));
        !best || each.saved > best->saved)
      best = std::move(each);
  return best;
}

}  // namespace espalier
