// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/layouts_to_verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "models/layout_rules.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {
namespace {

std::vector<std::string> settings_of_parallel(const Layout& layout) {
  std::vector<std::string> settings = settings_of(layout);
  std::erase_if(settings, [](const std::string& setting) { return !setting.starts_with("parallel."); });
  return settings;
}

// With the virtual stages of each; those with several come last.
std::vector<std::pair<ScheduleKind, int>> schedules_of(const ModelConfig& model, int pipeline) {
  if (pipeline == 1)
    return {{ScheduleKind::one_f_one_b, 1}};
  std::vector<std::pair<ScheduleKind, int>> schedules;
  for (const ScheduleKind kind : schedule_kinds_with_lists())
    if (const int chunks = allowed_chunks(kind).least; chunks == 1 || has_layer_for_each_part(model, pipeline, chunks))
      schedules.emplace_back(kind, chunks);
  std::ranges::stable_sort(schedules, {}, &std::pair<ScheduleKind, int>::second);
  return schedules;
}

}  // namespace

std::vector<Layout> layouts_to_verify(const RunConfig& config, int world_size) {
  std::vector<Layout> all;
  for (const MeshLayout& mesh : layouts_by_distance(world_size, PerAxis::degrees(1, world_size, 1))) {
    Layout layout = config.layout;
    layout.tensor = mesh.degree(Axis::tp);
    layout.data = mesh.degree(Axis::dp);
    layout.pipeline = mesh.degree(Axis::pp);
    layout.assignment = Assignment::consecutive;
    layout.layers.clear();
    const auto add = [&](std::pair<ScheduleKind, int> schedule, int zero, bool rows, ShardOver over, bool keep) {
      std::tie(layout.schedule, layout.virtual_stages) = schedule;
      layout.zero_stage = zero;
      layout.sequence_parallel = rows;
      layout.shard_over = over;
      layout.shard_replicas = over == ShardOver::node ? layout.data / 2 : 0;
      layout.keep_gathered = keep;
      all.push_back(layout);
    };
    const std::vector<std::pair<ScheduleKind, int>> schedules = schedules_of(config.model.shape, layout.pipeline);
    const bool has_tensor = layout.tensor > 1;
    for (const auto& schedule : schedules)
      for (int zero = 0; zero <= (layout.data > 1 ? 3 : 0); ++zero)
        for (int rows = 0; rows <= (has_tensor ? 1 : 0); ++rows)
          add(schedule, zero, rows == 1, ShardOver::all, false);
    if (layout.data > 1)
      add(schedules.back(), 3, has_tensor, ShardOver::all, true);
    for (int zero = 1; zero <= 3 && layout.data % 2 == 0 && layout.data > 2; ++zero)
      add({ScheduleKind::one_f_one_b, 1}, zero, has_tensor, ShardOver::node, false);
  }
  return all;
}

std::vector<std::string> settings_to_verify(const Layout& layout) {
  std::vector<std::string> settings = settings_of_parallel(layout);
  settings.push_back(fmt::format("emulate.ranks_per_node={}", layout.tensor * layout.shard_replicas));
  return settings;
}

std::vector<std::vector<std::string>> settings_to_verify(const RunConfig& config, int world_size) {
  std::vector<std::vector<std::string>> all;
  for (const Layout& layout : layouts_to_verify(config, world_size))
    all.push_back(settings_to_verify(layout));
  return all;
}

std::vector<std::string> one_rank_settings() {
  Layout layout;
  layout.data = 0;
  std::vector<std::string> settings = settings_of_parallel(layout);
  std::erase_if(settings, [](const std::string& setting) {
    return setting.starts_with("parallel.recompute=") || setting.starts_with("parallel.order=");
  });
  return settings;
}

std::string broken_part(InjectedFault fault) {
  switch (fault) {
    case InjectedFault::none:
    case InjectedFault::wrong_token_weight: break;
    case InjectedFault::drop_all_reduce: return "sum over tensor ranks";
    case InjectedFault::swap_shards: return "shards on tensor ranks";
    case InjectedFault::no_tied_reduction: return "tied embeddings on two pipeline stages";
    case InjectedFault::no_tensor_sum: return "gradients that tensor ranks sum";
    case InjectedFault::no_kv_sum: return "heads of keys and values that tensor ranks hold copies of";
    case InjectedFault::wrong_positions: return "rotary positions on tensor ranks";
    case InjectedFault::late_gather:
    case InjectedFault::released_layer: return "gathered layers";
    case InjectedFault::no_copies_sum: return "copies of sharded gradients";
  }
  return "micro-batch";
}

bool can_break(InjectedFault fault, const RunConfig& config) {
  const ModelConfig& model = config.model.shape;
  const bool has_tensor = config.layout.tensor > 1;
  switch (fault) {
    case InjectedFault::none:
    case InjectedFault::wrong_token_weight: break;
    case InjectedFault::drop_all_reduce:
    case InjectedFault::swap_shards: return has_tensor;
    case InjectedFault::no_tied_reduction: return model.tied_embeddings && config.layout.pipeline > 1;
    case InjectedFault::no_tensor_sum: return has_tensor && (config.layout.sequence_parallel || model.qk_norm);
    case InjectedFault::no_kv_sum: return config.layout.tensor > model.kv_heads();
    case InjectedFault::wrong_positions: return has_tensor && model.positions == Positions::rotary;
    case InjectedFault::late_gather:
    case InjectedFault::released_layer: return config.layout.acting_zero_stage() == 3;
    case InjectedFault::no_copies_sum: return config.layout.shard_over == ShardOver::node;
  }
  return true;
}

RunConfig shrunk(const RunConfig& config) {
  RunConfig small = config;
  ModelConfig& shape = small.model.shape;
  constexpr Index channels_a_head = 16;
  shape.num_layers = std::min<Index>(shape.num_layers, 8);
  shape.num_heads = std::min<Index>(shape.num_heads, 8);
  const Index group = config.model.shape.num_heads / config.model.shape.kv_heads();  // heads that share keys
  shape.num_kv_heads = group == 1 ? 0 : std::max<Index>(1, shape.num_heads / group);
  shape.hidden_size = std::min(shape.hidden_size, channels_a_head * shape.num_heads);
  if (shape.head_dim > 0)
    shape.head_dim = std::min(shape.head_dim, channels_a_head + 2);  // as much apart from C / NH as there
  if (shape.rotary.size > 0)
    shape.rotary.size = std::min(shape.rotary.size, channels_a_head / 2);
  if (shape.window > 0)
    shape.window = std::min<Index>(shape.window, 12);
  if (shape.full_layers < config.model.shape.num_layers)
    shape.full_layers = std::min(shape.full_layers, shape.num_layers / 2);
  shape.ffn_hidden_size = std::min(shape.ffn_hidden_size, 4 * shape.hidden_size);
  small.sequence_length = std::min<Index>(small.sequence_length, 32);
  small.layout.micro_batch = 1;  // any number of replicas up to the batch divides it
  small.layout.global_batch = 16;
  small.layout.layers.clear();
  return small;
}

}  // namespace espalier
