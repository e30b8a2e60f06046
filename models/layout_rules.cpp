// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/layout_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/nearest_sizes.hpp"

namespace espalier {
namespace {

constexpr Index max_microbatches = 1 << 16;  // the ranks plan, prove and keep the lists of a whole step

constexpr const char* section = "parallel";

using Rules = std::vector<BrokenRule>;

// A size of the model of which each tensor rank takes a part.
struct SharedSize {
  const char* key;
  Index size;
  bool can_be_shared;
};

std::array<SharedSize, 4> shared_sizes(const ModelConfig& model, Index tensor) {
  const Index kv_heads = model.kv_heads();
  const bool kv_follow = kv_heads == model.num_heads || kv_heads % tensor == 0 || tensor % kv_heads == 0;
  return {{{"num_heads", model.num_heads, model.num_heads % tensor == 0},
           {"num_kv_heads", kv_heads, kv_follow},
           {"ffn_hidden_size", model.ffn_hidden_size, model.ffn_hidden_size % tensor == 0},
           {"vocab_size", model.vocab_size, model.vocab_size >= tensor}}};
}

std::string either(const std::vector<Index>& sizes) { return fmt::format("{}", fmt::join(sizes, " or ")); }

void check_tensor(Rules& broken, const ModelConfig& model, Index tensor) {
  for (const SharedSize& shared : shared_sizes(model, tensor)) {
    if (shared.can_be_shared)
      continue;
    const std::vector<Index> degrees = tensor_degrees(model);
    const auto is_degree = [&](Index size) { return std::ranges::binary_search(degrees, size); };
    broken.push_back({section,
                      "tensor",
                      fmt::format("{0} cannot share {1} {2} (nearest: tensor {3}, {1} {4})", tensor, shared.key,
                                  shared.size, either(nearest_sizes(tensor, model.num_heads, is_degree)),
                                  either(nearest_multiples(shared.size, tensor))),
                      {fmt::format("model.{}", shared.key)}});
  }
}

// Each part has a layer. Programs that `train` is compared with may have the embedding and the head on parts of their
// own: `layers` is 0 there.
void check_parts(Rules& broken, Index num_layers, const Layout& layout) {
  const Index parts = Index{layout.pipeline} * layout.virtual_stages;  // num_parts() may overflow here
  const std::vector<Index>& layers = layout.layers;
  const int bare_ends = layers.empty() ? 0 : (layers.front() == 0 ? 1 : 0) + (layers.back() == 0 ? 1 : 0);
  if (parts <= num_layers + bare_ends)
    return;
  const Index max_stages = num_layers / layout.virtual_stages;
  broken.push_back({section,
                    "pipeline",
                    fmt::format("{} x virtual_stages {} = {} parts are more than num_layers {}{}", layout.pipeline,
                                layout.virtual_stages, parts, num_layers,
                                max_stages > 0 ? fmt::format(" (nearest: pipeline {})", max_stages) : ""),
                    {"parallel.virtual_stages", "model.num_layers"}});
}

// "sequential, gpipe, interleaved": of those that `train` runs.
std::string schedules_with(int chunks) {
  std::vector<std::string> names;
  for (const ScheduleKind kind : schedule_kinds_with_lists())
    if (allowed_chunks(kind).has(chunks))
      names.emplace_back(to_string(kind));
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_virtual_stages(Rules& broken, const Layout& layout) {
  const int count = layout.virtual_stages;
  if (count > 1 && layout.pipeline == 1)
    broken.push_back({section,
                      "virtual_stages",
                      fmt::format("{} need a pipeline of two stages or more{}", count,
                                  layout.assignment == Assignment::round_robin
                                      ? ": assignment round_robin makes each layer a virtual stage"
                                      : ""),
                      {"parallel.pipeline", "parallel.assignment"}});
  const ChunkCounts allowed = allowed_chunks(layout.schedule);
  if (count > allowed.most || (count < allowed.least && layout.pipeline > 1))
    broken.push_back({section,
                      "schedule",
                      fmt::format("{0}, not virtual_stages {1} (schedules with {1}: {2})",
                                  virtual_stages_text(layout.schedule), count, schedules_with(count)),
                      {"parallel.virtual_stages"}});
}

void check_lists(Rules& broken, Index num_layers, const Layout& layout) {
  const Index parts = Index{layout.pipeline} * layout.virtual_stages;  // see check_parts()
  const Index sum = std::accumulate(layout.layers.begin(), layout.layers.end(), Index{0});
  const auto given = std::ssize(layout.layers);
  if (given > 0 && given != parts)
    broken.push_back(
        {section,
         "layers_per_stage",
         fmt::format("has {} numbers, wanted {}, one for each virtual stage: pipeline {} x virtual_stages {}", given,
                     parts, layout.pipeline, layout.virtual_stages),
         {"parallel.pipeline", "parallel.virtual_stages"}});
  else if (given > 0 && sum != num_layers)
    broken.push_back({section,
                      "layers_per_stage",
                      fmt::format("adds up to {}, not to num_layers {}", sum, num_layers),
                      {"model.num_layers"}});
  const auto modes = std::ssize(layout.recompute_per_stage);
  if (modes > 0 && modes != layout.pipeline)
    broken.push_back({section,
                      "recompute_per_stage",
                      fmt::format("has {} entries, wanted one for each stage of pipeline {}", modes, layout.pipeline),
                      {"parallel.pipeline"}});
}

void check_batch(Rules& broken, const Layout& layout) {
  const Index sequences = layout.micro_batch * layout.data;
  const Index batch = layout.global_batch;
  const std::vector<std::string> others{"batch.micro_batch_size", "parallel.data"};
  if (batch % sequences != 0) {
    const Index smaller = std::gcd(batch / layout.data, layout.micro_batch);
    broken.push_back({"batch", "global_batch_size",
                      fmt::format("{} is not divisible by micro_batch_size {} x data {} (nearest: {}{})", batch,
                                  layout.micro_batch, layout.data, either(nearest_multiples(batch, sequences)),
                                  batch % layout.data == 0 ? fmt::format(", or micro_batch_size {}", smaller) : ""),
                      others});
  }
  if (batch / sequences > max_microbatches)
    broken.push_back({"batch", "global_batch_size",
                      fmt::format("{} makes {} micro-batches a step on each replica, wanted at most {}: raise "
                                  "micro_batch_size or data",
                                  batch, batch / sequences, max_microbatches),
                      others});
}

void check_sequences(Rules& broken, Index sequence_length, const Layout& layout) {
  const auto divides = [&](Index ranks) { return sequence_length % ranks == 0; };
  if (!divides(layout.context)) {
    const std::vector<Index> nearest = nearest_sizes(layout.context, sequence_length, divides);
    broken.push_back({section,
                      "context",
                      fmt::format("{} does not divide sequence_length {}{}", layout.context, sequence_length,
                                  nearest.empty() ? "" : fmt::format(" (nearest: {})", either(nearest))),
                      {"batch.sequence_length"}});
  }
  const Index rows = layout.micro_batch * (sequence_length / layout.context);
  if (layout.sequence_parallel && rows % layout.tensor != 0)
    broken.push_back({section,
                      "sequence_parallel",
                      fmt::format("shares micro_batch_size {} x sequence_length {}{} = {} rows, which tensor {} does "
                                  "not divide (nearest: {} rows)",
                                  layout.micro_batch, sequence_length,
                                  layout.context > 1 ? fmt::format(" / context {}", layout.context) : "", rows,
                                  layout.tensor, either(nearest_multiples(rows, layout.tensor))),
                      {"batch.micro_batch_size", "batch.sequence_length", "parallel.tensor"}});
}

// The mesh of the ranks as they lie on the machine: context ranks are nearer to each other than replicas.
MeshLayout mesh_with_context(const Layout& layout) {
  return {.degrees = PerAxis::degrees(layout.tensor * layout.context, layout.data, layout.pipeline),
          .order = layout.order};
}

}  // namespace

std::vector<BrokenRule> broken_rules(const ModelConfig& model, Index sequence_length, const Layout& layout) {
  Rules broken;
  check_tensor(broken, model, layout.tensor);
  check_parts(broken, model.num_layers, layout);
  check_virtual_stages(broken, layout);
  check_lists(broken, model.num_layers, layout);
  check_batch(broken, layout);
  check_sequences(broken, sequence_length, layout);
  return broken;
}

bool has_layer_for_each_part(const ModelConfig& model, Index pipeline, Index virtual_stages) {
  return pipeline * virtual_stages <= model.num_layers;
}

std::string virtual_stages_text(ScheduleKind schedule) {
  const ChunkCounts allowed = allowed_chunks(schedule);
  return fmt::format("{} has {}{} virtual stage{} per stage", to_string(schedule),
                     allowed.least < allowed.most ? "at least " : "", allowed.least, allowed.least > 1 ? "s" : "");
}

Layout with_shards(Layout layout, int ranks_per_node, int max_summed_at_once) {
  layout.shard_replicas = layout.first_level_replicas = 0;
  if (layout.shards_within_nodes()) {
    const int replicas = replicas_of_a_node(mesh_with_context(layout), ranks_per_node);
    if (replicas == 1)
      layout.zero_stage = 0;
    layout.shard_replicas = replicas == layout.data ? 0 : replicas;
  }
  if (!layout.mesh().is_hybrid_sharded())
    layout.first_level_replicas = first_level_replicas(mesh_with_context(layout), ranks_per_node, max_summed_at_once);
  return layout;
}

int round_robin_chunks(const ModelConfig& model, int pipeline) {
  return static_cast<int>(std::max<Index>(1, model.num_layers / pipeline));
}

Layout acting_layout(Layout layout, const ModelConfig& model) {
  layout.sequence_parallel = layout.splits_rows();
  layout.zero_stage = layout.acting_zero_stage();
  layout.kv_copies = model.kv_copies(layout.tensor);
  if (layout.assignment == Assignment::round_robin)
    layout.virtual_stages = round_robin_chunks(model, layout.pipeline);
  std::vector<Recompute>& by_stage = layout.recompute_per_stage;
  if (!by_stage.empty() && std::ranges::count(by_stage, by_stage.front()) == std::ssize(by_stage)) {
    layout.recompute = by_stage.front();
    by_stage.clear();
  }
  return layout;
}

std::string why_unlike_nodes(const Layout& layout, int ranks_per_node) {
  if (!layout.shards_within_nodes() || replicas_of_a_node(mesh_with_context(layout), ranks_per_node) > 0)
    return {};
  return fmt::format("shard_over node: nodes of {} ranks hold different numbers of the {} replicas", ranks_per_node,
                     layout.data);
}

std::vector<Index> tensor_degrees(const ModelConfig& model) {
  std::vector<Index> degrees;
  for (Index tensor = 1; tensor <= std::min(model.num_heads, model.vocab_size); ++tensor)
    if (std::ranges::all_of(shared_sizes(model, tensor), &SharedSize::can_be_shared))
      degrees.push_back(tensor);
  return degrees;
}

}  // namespace espalier
