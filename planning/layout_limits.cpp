// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_limits.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/nearest_multiples.hpp"
#include "io/units.hpp"
#include "planning/collective_time.hpp"

namespace espalier {
namespace {

// " (nearest: 4 or 6)"; empty of none.
std::string nearest_text(const std::vector<Index>& sizes) {
  return sizes.empty() ? "" : fmt::format(" (nearest: {})", fmt::join(sizes, " or "));
}

// The degrees of the tensor axis that divide all that it must, next to the layout's.
std::string nearest_tensor_text(const PlanProblem& problem, const Layout& layout) {
  const std::vector<Index> degrees = tensor_degrees(problem.model);
  const auto divides = [&](Index t) {
    return std::ranges::binary_search(degrees, t) && (!layout.sequence_parallel || problem.sequence_length % t == 0);
  };
  return nearest_text(nearest_sizes(layout.tensor, problem.model.num_heads, divides));
}

}  // namespace

std::vector<Index> nearest_sizes(Index wanted, Index most, const std::function<bool(Index)>& possible, Index farthest) {
  std::vector<Index> found;
  for (Index size = std::min(wanted - 1, most); size >= std::max<Index>(1, wanted - farthest) && found.empty(); --size)
    if (possible(size))
      found.push_back(size);
  for (Index size = wanted + 1; size <= std::min(most, wanted + farthest); ++size)
    if (possible(size)) {
      found.push_back(size);
      break;
    }
  return found;
}

std::string why_impossible(const PlanProblem& problem, const Layout& layout) {
  const ModelConfig& model = problem.model;
  if (layout.num_devices() > problem.cluster.num_devices())
    return fmt::format("it needs {} devices, the machine has {}", layout.num_devices(), problem.cluster.num_devices());
  if (!problem.cluster.device.has(layout.precision))
    return fmt::format("{} has no {} (it has {})", problem.cluster.device.name, to_string(layout.precision),
                       fmt::join(precision_names(problem.cluster.device), ", "));
  if (layout.precision == Precision::fp8 && !problem.cluster.device.has(Precision::bf16))
    return fmt::format("{} has no bf16, in which fp8 leaves attention and head", problem.cluster.device.name);
  if (model.num_heads % layout.tensor != 0)
    return fmt::format("tensor {} does not divide the {} heads{}", layout.tensor, model.num_heads,
                       nearest_tensor_text(problem, layout));
  if (model.kv_heads() % layout.tensor != 0 && layout.tensor % model.kv_heads() != 0)
    return fmt::format("tensor {} neither divides the {} heads of keys and values nor is a multiple{}", layout.tensor,
                       model.kv_heads(), nearest_tensor_text(problem, layout));
  if (model.ffn_hidden_size % layout.tensor != 0)
    return fmt::format("tensor {} does not divide ffn_hidden_size {}{}", layout.tensor, model.ffn_hidden_size,
                       nearest_tensor_text(problem, layout));
  if (model.vocab_size < layout.tensor)
    return fmt::format("tensor {} has more ranks than the vocabulary has tokens ({}){}", layout.tensor,
                       model.vocab_size, nearest_tensor_text(problem, layout));
  const auto stages_possible = [&](Index stages) {
    const Index parts = stages * layout.virtual_stages;
    return parts <= model.num_layers || parts == model.num_layers + 2;  // embedding and head count as blocks
  };
  if (!stages_possible(layout.pipeline))
    return fmt::format("{} pipeline stages x {} virtual stages need as many layers, the model has {}{}",
                       layout.pipeline, layout.virtual_stages, model.num_layers,
                       nearest_text(nearest_sizes(layout.pipeline, model.num_layers + 2, stages_possible)));
  const auto divides_sequence = [&](Index ranks) { return problem.sequence_length % ranks == 0; };
  if (!divides_sequence(layout.context))
    return fmt::format("context {} does not divide the sequence of {} tokens{}", layout.context,
                       problem.sequence_length,
                       nearest_text(nearest_sizes(layout.context, problem.sequence_length, divides_sequence)));
  if (layout.global_batch % (layout.micro_batch * layout.data) != 0)
    return fmt::format("micro-batch {} x data {} does not divide the global batch of {}{}", layout.micro_batch,
                       layout.data, layout.global_batch,
                       nearest_text(nearest_multiples(layout.global_batch, layout.micro_batch * layout.data)));
  if (has_odd_nodes(layout, problem.cluster))
    return fmt::format("shard_over node: nodes of {} devices hold unlike numbers of the {} replicas",
                       problem.cluster.devices_per_node, layout.data);
  if (layout.sequence_parallel && !divides_sequence(layout.tensor))
    return fmt::format("tensor {} does not divide the sequence of {} tokens{}", layout.tensor, problem.sequence_length,
                       nearest_tensor_text(problem, layout));
  if (layout.virtual_stages > 1 && layout.pipeline == 1)
    return "virtual stages need a pipeline";
  if (layout.virtual_stages > 1 && !allows_chunks(layout.schedule))
    return fmt::format("{} has one virtual stage per stage, not {}: schedule=interleaved", to_string(layout.schedule),
                       layout.virtual_stages);
  if (layout.schedule == ScheduleKind::zero_bubble_v && layout.pipeline > 1 && layout.virtual_stages != 2)
    return fmt::format("zero_bubble_v has two virtual stages per stage, not {}: virtual_stages=2",
                       layout.virtual_stages);
  return {};
}

std::size_t room_bytes(const PlanProblem& problem) {
  return static_cast<std::size_t>(problem.cluster.device.memory_bytes - problem.cluster.reserved_bytes);
}

std::string room_text(const PlanProblem& problem) {
  const Cluster& cluster = problem.cluster;
  const auto text = [](Index bytes) { return bytes_text(static_cast<std::size_t>(bytes)); };
  return fmt::format("{} free (of {}, {} reserved)", bytes_text(room_bytes(problem)), text(cluster.device.memory_bytes),
                     text(cluster.reserved_bytes));
}

bool has_room(const PlanProblem& problem, std::size_t bytes) { return bytes <= room_bytes(problem); }

std::string why_too_large(const PlanProblem& problem, const LayoutPrice& price) {
  const std::size_t room = room_bytes(problem);
  if (has_room(problem, price.memory_bytes))
    return {};
  const MemoryByCategory& stage = price.memory[static_cast<std::size_t>(price.peak_stage)];
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(stage.bytes) - stage.bytes.begin());
  return fmt::format("does not fit: stage {} needs {}, a device has {}: {} too much, most of it {} ({})",
                     price.peak_stage, bytes_text(price.memory_bytes), room_text(problem),
                     bytes_text(price.memory_bytes - room), to_string(static_cast<Category>(largest)),
                     bytes_text(stage.bytes[largest]));
}

}  // namespace espalier
