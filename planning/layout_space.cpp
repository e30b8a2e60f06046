// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "models/layout_rules.hpp"
#include "planning/collective_time.hpp"
#include "planning/layout_limits.hpp"
#include "planning/layout_option.hpp"
#include "planning/runnable.hpp"

namespace espalier {
namespace {

template <class T>
std::vector<T> divisors(T value, T most) {
  std::vector<T> found;
  for (T i = 1; i <= std::min(value, most); ++i)
    if (value % i == 0)
      found.push_back(i);
  return found;
}

template <class T>
std::vector<T> fixed_or(const std::optional<T>& fixed, std::vector<T> open) {
  return fixed ? std::vector<T>{*fixed} : std::move(open);
}

std::vector<int> chunk_counts(const PlanProblem& problem, const LayoutSpace& space, int pipeline) {
  if (space.virtual_stages)
    return {*space.virtual_stages};
  if (pipeline == 1)
    return {1};
  const int least = space.schedule ? allowed_chunks(*space.schedule).least : 1;
  std::vector<int> counts{least};
  if (!space.schedule || *space.schedule == ScheduleKind::interleaved)
    for (int chunks = least + 1; chunks <= 8; ++chunks)
      if (has_layer_for_each_part(problem.model, pipeline, chunks))
        counts.push_back(chunks);
  return counts;
}

// One copy of what ZeRO shards; and one on each node, where that is another layout.
void append_shards(std::vector<Layout>& layouts, const PlanProblem& problem, const LayoutSpace& space, Layout layout) {
  for (const ShardOver over : fixed_or(space.shard_over, std::vector{ShardOver::all, ShardOver::node})) {
    layout.shard_over = over;
    const Layout shared = with_shards(layout, problem.cluster);
    const bool is_another =
        shared.shard_replicas > 1 && why_unlike_nodes(layout, problem.cluster.devices_per_node).empty();
    if (over == ShardOver::all || space.shard_over || is_another)
      layouts.push_back(shared);
  }
}

// The open choices that cost nothing to combine, for one mesh of ranks.
void append_choices(std::vector<Layout>& layouts, const PlanProblem& problem, const LayoutSpace& space, Layout mesh) {
  const std::vector<Recompute> modes = fixed_or(space.recompute, all_recompute_modes());
  std::vector<int> all_stages(mesh.gradient_ranks() == 1 ? 1 : most_zero_stage + 1);
  std::iota(all_stages.begin(), all_stages.end(), 0);
  const std::vector<int> stages = fixed_or(space.zero_stage, all_stages);
  if (mesh.tensor == 1 && space.sequence_parallel.value_or(false))
    return;  // nobody to split rows with
  const std::vector<bool> sequence =
      mesh.tensor == 1 ? std::vector<bool>{false} : fixed_or(space.sequence_parallel, std::vector<bool>{false, true});
  for (const Precision precision : space.precisions)
    for (const Recompute mode : modes)
      for (const int zero : stages)
        for (const bool parallel : sequence) {
          mesh.precision = precision;
          mesh.recompute = mode;
          mesh.zero_stage = zero;
          mesh.sequence_parallel = parallel;
          append_shards(layouts, problem, space, mesh);
        }
}

void append_microbatches(std::vector<Layout>& layouts, const PlanProblem& problem, const LayoutSpace& space,
                         Layout mesh) {
  const Index per_replica = std::max<Index>(1, space.global_batch / mesh.data);
  for (const Index size : fixed_or(space.micro_batch, divisors<Index>(per_replica, 16)))
    for (const int chunks : chunk_counts(problem, space, mesh.pipeline)) {
      mesh.micro_batch = size;
      mesh.virtual_stages = chunks;
      const bool both_orders = space.tries_orders && mesh.pipeline > 1 && mesh.data > 1;
      const std::vector<AxisOrder> orders =
          fixed_or(space.order,
                   both_orders ? std::vector{data_first_order, pipeline_first_order} : std::vector{data_first_order});
      std::vector<ScheduleKind> schedules;
      if (space.schedule)
        schedules = {*space.schedule};
      else if (chunks > 1)
        schedules = {ScheduleKind::interleaved};
      else
        schedules = {ScheduleKind::one_f_one_b};
      if (!space.schedule && chunks == 1 && mesh.pipeline > 1)
        schedules.push_back(ScheduleKind::zero_bubble);
      for (const ScheduleKind schedule : schedules)
        for (const AxisOrder& order : orders) {
          mesh.schedule = schedule;
          mesh.order = order;
          append_choices(layouts, problem, space, mesh);
        }
    }
}

}  // namespace

std::vector<Layout> enumerate_layouts(const PlanProblem& problem, const LayoutSpace& space) {
  std::vector<Layout> layouts;
  const int devices = space.num_devices;
  const int most_tensor = std::min(devices, 2 * problem.cluster.devices_per_node);
  const std::vector<int> tensors = fixed_or(space.tensor, divisors(devices, std::min(most_tensor, 64)));
  const std::vector<int> contexts =
      fixed_or(space.context, space.tries_context ? divisors(devices, 16) : std::vector<int>{1});
  for (const int tensor : tensors)
    for (const int context : contexts) {
      if (devices % (tensor * context) != 0)
        continue;
      const int left = devices / (tensor * context);
      const int most_stages = static_cast<int>(std::min<Index>(problem.model.num_layers, 512));
      for (const int pipeline : fixed_or(space.pipeline, divisors(left, most_stages))) {
        if (left % pipeline != 0 || (space.data && *space.data != left / pipeline))
          continue;
        Layout mesh;
        mesh.tensor = tensor;
        mesh.context = context;
        mesh.pipeline = pipeline;
        mesh.data = left / pipeline;
        mesh.global_batch = space.global_batch;
        append_microbatches(layouts, problem, space, mesh);
      }
    }
  if (space.only_runnable)
    std::erase_if(layouts, [&](const Layout& layout) { return !why_not_runnable(layout).empty(); });
  return layouts;
}

void fix_choices(LayoutSpace& space, const std::string& text) {
  const Layout given = parse_layout(text, {}, "--fix");
  for (const std::string& key : layout_keys_in(text, "--fix"))
    if (key == "precision")
      space.precisions = {given.precision};
    else
      each_choice([&](const char* name, auto fixed, auto chosen) {
        if (key == name)
          space.*fixed = given.*chosen;
      });
  std::string contradiction;
  if (space.tensor == 1 && space.sequence_parallel.value_or(false))
    contradiction = "sequence_parallel needs tensor ranks, but tensor is 1";
  else if (space.pipeline == 1 && space.schedule && *space.schedule != ScheduleKind::one_f_one_b)
    contradiction = fmt::format("schedule {} needs stages, but pipeline is 1", to_string(*space.schedule));
  else if (space.schedule && space.virtual_stages && !allowed_chunks(*space.schedule).has(*space.virtual_stages))
    contradiction = fmt::format("schedule {}, but virtual_stages is {}", virtual_stages_text(*space.schedule),
                                *space.virtual_stages);
  if (!contradiction.empty())
    throw Error(ExitCode::usage, {.what = "--fix contradicts itself",
                                  .got = text,
                                  .wanted = "choices that fit together: " + contradiction,
                                  .todo = "leave one of the two free"});
}

std::optional<Layout> fastest_layout(const PlanProblem& problem, const std::vector<Layout>& layouts) {
  std::optional<Layout> best;
  double seconds = 0;
  for (const Layout& layout : layouts) {
    if (!why_impossible(problem, layout).empty())
      continue;
    const LayoutPrice price = price_layout(problem, layout, Effort::estimate);
    if (!why_too_large(problem, price).empty())
      continue;
    if (!best || price.step_seconds < seconds) {
      best = layout;
      seconds = price.step_seconds;
    }
  }
  return best;
}

std::vector<std::string> choices_left(const LayoutSpace& space, const Layout& layout) {
  std::vector<std::string> left;
  if (space.global_batch != layout.global_batch)
    left.emplace_back("the batch");
  each_choice([&](const char* name, auto fixed, auto chosen) {
    if (space.*fixed && *(space.*fixed) != layout.*chosen)
      left.emplace_back(name);
  });
  if (std::ranges::find(space.precisions, layout.precision) == space.precisions.end())
    left.emplace_back("precision");
  return left;
}

bool searches_context(const LayoutSpace& space) { return space.context ? *space.context > 1 : space.tries_context; }

}  // namespace espalier
