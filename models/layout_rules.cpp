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

constexpr Index most_microbatches = 1 << 16;  // the ranks plan, prove and keep the lists of a whole step

using Problems = std::vector<LayoutProblem>;

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

void check_tensor(Problems& found, const ModelConfig& model, Index tensor) {
  for (const SharedSize& shared : shared_sizes(model, tensor)) {
    if (shared.can_be_shared)
      continue;
    const std::vector<Index> degrees = tensor_degrees(model);
    const auto is_degree = [&](Index size) { return std::ranges::binary_search(degrees, size); };
    found.push_back(
        {"parallel", fmt::format("tensor {0} cannot share {1} {2} (nearest: tensor {3}, {1} {4})", tensor, shared.key,
                                 shared.size, either(nearest_sizes(tensor, model.num_heads, is_degree)),
                                 either(nearest_multiples(shared.size, tensor)))});
  }
}

void check_virtual_stages(Problems& found, const Layout& layout) {
  const int count = layout.virtual_stages;
  if (count > 1 && layout.pipeline == 1)
    found.push_back({"parallel", fmt::format("virtual_stages {} need a pipeline of two stages or more{}", count,
                                             layout.assignment == Assignment::round_robin
                                                 ? ": assignment round_robin makes each layer one"
                                                 : "")});
  if (count > 1 && !allows_chunks(layout.schedule))
    found.push_back({"parallel", fmt::format("schedule {} has one virtual stage per stage, not virtual_stages {}; "
                                             "interleaved, gpipe and sequential have several",
                                             to_string(layout.schedule), count)});
  if (layout.schedule == ScheduleKind::zero_bubble_v && layout.pipeline > 1 && count != 2)
    found.push_back({"parallel", fmt::format("schedule zero_bubble_v has two virtual stages per stage, not "
                                             "virtual_stages {}",
                                             count)});
}

void check_lists(Problems& found, Index num_layers, const Layout& layout) {
  const Index parts = Index{layout.pipeline} * layout.virtual_stages;
  const Index sum = std::accumulate(layout.layers.begin(), layout.layers.end(), Index{0});
  const auto given = std::ssize(layout.layers);
  if (given > 0 && given != parts)
    found.push_back(
        {"parallel", fmt::format("layers_per_stage has {} numbers, wanted {}: pipeline {} x virtual_stages {}", given,
                                 parts, layout.pipeline, layout.virtual_stages)});
  else if (given > 0 && sum != num_layers)
    found.push_back({"parallel", fmt::format("layers_per_stage adds up to {}, not to num_layers {}", sum, num_layers)});
  const auto modes = std::ssize(layout.recompute_per_stage);
  if (modes > 0 && modes != layout.pipeline)
    found.push_back(
        {"parallel", fmt::format("recompute_per_stage has {} entries, wanted one for each stage of pipeline "
                                 "{}",
                                 modes, layout.pipeline)});
}

void check_batch(Problems& found, const Layout& layout) {
  const Index sequences = layout.micro_batch * layout.data;
  const Index batch = layout.global_batch;
  if (batch % sequences != 0) {
    const Index smaller = std::gcd(batch / layout.data, layout.micro_batch);
    found.push_back(
        {"batch", fmt::format("global_batch_size {} is not divisible by micro_batch_size {} x data {} "
                              "(nearest: {}{})",
                              batch, layout.micro_batch, layout.data, either(nearest_multiples(batch, sequences)),
                              batch % layout.data == 0 ? fmt::format(", or micro_batch_size {}", smaller) : "")});
  }
  if (batch / sequences > most_microbatches)
    found.push_back(
        {"batch", fmt::format("global_batch_size {} makes {} micro-batches a step on each replica, wanted at "
                              "most {}: raise micro_batch_size or data",
                              batch, batch / sequences, most_microbatches)});
}

void check_sequences(Problems& found, Index sequence_length, const Layout& layout) {
  const auto divides = [&](Index ranks) { return sequence_length % ranks == 0; };
  if (!divides(layout.context))
    found.push_back(
        {"parallel", fmt::format("context {} does not divide sequence_length {} (nearest: {})", layout.context,
                                 sequence_length, either(nearest_sizes(layout.context, sequence_length, divides)))});
  const Index rows = layout.micro_batch * (sequence_length / layout.context);
  if (layout.sequence_parallel && rows % layout.tensor != 0)
    found.push_back({"parallel", fmt::format("sequence_parallel shares micro_batch_size {} x sequence_length {}{} = {} "
                                             "rows, which tensor {} does not divide (nearest: {} rows)",
                                             layout.micro_batch, sequence_length,
                                             layout.context > 1 ? fmt::format(" / context {}", layout.context) : "",
                                             rows, layout.tensor, either(nearest_multiples(rows, layout.tensor)))});
}

}  // namespace

std::vector<LayoutProblem> layout_problems(const ModelConfig& model, Index sequence_length, const Layout& layout,
                                           Index most_parts) {
  Problems found;
  check_tensor(found, model, layout.tensor);
  if (std::string problem = why_too_many_parts(most_parts, layout); !problem.empty())
    found.push_back({"parallel", std::move(problem)});
  check_virtual_stages(found, layout);
  check_lists(found, model.num_layers, layout);
  check_batch(found, layout);
  check_sequences(found, sequence_length, layout);
  return found;
}

std::string why_too_many_parts(Index most_parts, const Layout& layout) {
  const Index parts = Index{layout.pipeline} * layout.virtual_stages;
  if (parts <= most_parts)
    return {};
  const Index most_stages = most_parts / layout.virtual_stages;
  return fmt::format("pipeline {} x virtual_stages {} = {} parts are more than num_layers {}{}", layout.pipeline,
                     layout.virtual_stages, parts, most_parts,
                     most_stages > 0 ? fmt::format(" (nearest: pipeline {})", most_stages) : "");
}

std::string unlike_nodes_text(Index ranks_per_node, int replicas) {
  return fmt::format("shard_over node: nodes of {} ranks hold unlike numbers of the {} replicas", ranks_per_node,
                     replicas);
}

std::vector<Index> tensor_degrees(const ModelConfig& model) {
  std::vector<Index> degrees;
  for (Index tensor = 1; tensor <= std::min(model.num_heads, model.vocab_size); ++tensor)
    if (std::ranges::all_of(shared_sizes(model, tensor), &SharedSize::can_be_shared))
      degrees.push_back(tensor);
  return degrees;
}

}  // namespace espalier
