// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/layouts_to_verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "parallel/mesh/mesh_layout.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

std::vector<std::vector<std::string>> layouts_to_verify(const RunConfig& config, int world_size) {
  std::vector<std::vector<std::string>> all;
  for (const MeshLayout& mesh : layouts_by_distance(world_size, PerAxis::degrees(1, world_size, 1))) {
    const int tensor = mesh.degree(Axis::tp);
    const int data = mesh.degree(Axis::dp);
    const int pipeline = mesh.degree(Axis::pp);
    std::vector<std::pair<std::string, int>> schedules = {{"1f1b", 1}};
    if (pipeline > 1)
      schedules = {{"sequential", 1}, {"gpipe", 1}, {"1f1b", 1}, {"zero_bubble", 1}};
    if (pipeline > 1 && 2 * pipeline <= config.model.shape.num_layers)
      schedules.emplace_back("interleaved", 2);
    const auto add = [&](const std::string& schedule, int chunks, int zero, bool sequence_parallel, int node,
                         bool keep_gathered = false) {
      all.push_back({fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.data={}", data),
                     fmt::format("parallel.pipeline={}", pipeline), fmt::format("parallel.schedule={}", schedule),
                     fmt::format("parallel.virtual_stages={}", chunks), fmt::format("parallel.zero_stage={}", zero),
                     fmt::format("parallel.sequence_parallel={}", sequence_parallel ? "true" : "false"),
                     fmt::format("parallel.keep_gathered={}", keep_gathered ? "true" : "false"),
                     fmt::format("parallel.shard_over={}", node > 0 ? "node" : "all"),
                     fmt::format("emulate.ranks_per_node={}", node), "parallel.layers_per_stage=[]",
                     "parallel.assignment=consecutive"});
    };
    for (const auto& [schedule, chunks] : schedules)
      for (int zero = 0; zero <= Layout{.data = data, .zero_stage = 3}.acting_zero_stage(); ++zero)
        for (int rows = 0; rows <= (tensor > 1 ? 1 : 0); ++rows)
          add(schedule, chunks, zero, rows == 1, 0);
    if (data > 1)
      add(schedules.back().first, schedules.back().second, 3, tensor > 1, 0, true);
    // Half of the replicas on a node.
    for (int zero = 1; zero <= 3 && data % 2 == 0 && data > 2; ++zero)
      add("1f1b", 1, zero, tensor > 1, tensor * data / 2);
  }
  return all;
}

std::string text_of_layout(const std::vector<std::string>& overrides) {
  const auto value = [&](const std::string& key) {
    const std::string head = "parallel." + key + "=";
    const auto found = std::ranges::find_if(overrides, [&](const std::string& text) { return text.starts_with(head); });
    ESPALIER_ASSERT(found != overrides.end(), "a layout to verify names all that its text has");
    return found->substr(head.size());
  };
  Layout layout;
  layout.tensor = std::stoi(value("tensor"));
  layout.data = std::stoi(value("data"));
  layout.pipeline = std::stoi(value("pipeline"));
  layout.schedule = parse_schedule_kind(value("schedule")).value();
  layout.virtual_stages = std::stoi(value("virtual_stages"));
  layout.zero_stage = std::stoi(value("zero_stage"));
  layout.keep_gathered = value("keep_gathered") == "true";
  layout.sequence_parallel = value("sequence_parallel") == "true";
  layout.shard_replicas = value("shard_over") == "node" ? layout.data / 2 : 0;
  return layout.short_text();
}

std::vector<std::string> one_rank_overrides() {
  return {"parallel.tensor=1",
          "parallel.pipeline=1",
          "parallel.data=0",
          "parallel.zero_stage=0",
          "parallel.virtual_stages=1",
          "parallel.sequence_parallel=false",
          "parallel.keep_gathered=false",
          "parallel.shard_over=all",
          "parallel.layers_per_stage=[]",
          "parallel.schedule=1f1b",
          "parallel.assignment=consecutive",
          "parallel.recompute_per_stage=[]"};
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
