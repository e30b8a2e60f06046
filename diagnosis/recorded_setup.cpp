// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_setup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "diagnosis/damaged_file.hpp"
#include "io/config/key_reader.hpp"
#include "models/largest_model.hpp"
#include "models/model_section.hpp"

namespace espalier {
namespace {

// Those of `train` (training/config/run_config.cpp), below whose rooms this is.
constexpr IntegerRange allowed_degree{1, 1 << 20};
constexpr IntegerRange allowed_batch_size{1, 1 << 24};
constexpr IntegerRange allowed_steps{0, Index{1} << 50};
constexpr RealRange allowed_seconds{.min = 0, .max = 1e12};
constexpr RealRange allowed_scale{.min = 0, .max = 1e18};
constexpr RealRange allowed_rate{.min = 0, .max = 1e38};

// A resolved config has all keys: one that is missing is from another version, and a default would be wrong.
void require(bool given, const char* key, const Path& path) {
  if (!given)
    throw_damaged(path.string(), "config.toml is not one that `espalier train` resolved", fmt::format("no {}", key),
                  "all keys of the layout");
}

ConfigReader reader_of(const std::string& config, const Path& path) {
  try {
    return ConfigReader(config, path.string(), {});
  } catch (const Error& error) {  // here it is no mistake of whoever runs the command
    throw_damaged(error.report().where.empty() ? path.string() : error.report().where, error.report().what,
                  error.report().got);
  }
}

// With parallel.data left open, the number of ranks that wrote decides; 0: unknown.
void read_mesh(ConfigReader& reader, int world_size, const Path& path, Layout& layout) {
  Index tensor = 1;
  Index pipeline = 1;
  Index data = 0;
  std::string order = to_string(layout.order);
  require(reader.read("parallel", "tensor", tensor, allowed_degree), "parallel.tensor", path);
  require(reader.read("parallel", "pipeline", pipeline, allowed_degree), "parallel.pipeline", path);
  require(reader.read("parallel", "data", data, {0, allowed_degree.max}), "parallel.data", path);
  reader.read("parallel", "order", order);
  if (world_size == 0)
    world_size = static_cast<int>(std::min(tensor * pipeline * std::max<Index>(data, 1), allowed_degree.max));
  if (tensor > world_size || pipeline > world_size)
    throw_damaged(path.string(), "the layout needs more ranks than have records",
                  fmt::format("tensor {}, pipeline {}, {} ranks", tensor, pipeline, world_size));
  layout.tensor = static_cast<int>(tensor);
  layout.pipeline = static_cast<int>(pipeline);
  try {
    layout.order = axis_order_from(order);
    layout.data = make_layout(world_size, layout.tensor, static_cast<int>(data), layout.pipeline).degree(Axis::dp);
  } catch (const Error& error) {
    throw_damaged(path.string(), error.report().what, error.report().got);
  }
}

// A word that this version does not know stands for the default.
template <class Choice>
void read_word(ConfigReader& reader, const char* section, const char* key, Choice& choice,
               const std::vector<Choice>& choices) {
  std::string word;
  reader.read(section, key, word);
  for (const Choice each : choices)
    if (word == to_string(each))
      choice = each;
}

Layout layout_of(ConfigReader& reader, int world_size, const Path& path, Layout layout) {
  read_mesh(reader, world_size, path, layout);
  Index virtual_stages = 1;
  Index zero_stage = 0;
  read_word(reader, "parallel", "schedule", layout.schedule, all_schedule_kinds());
  reader.read("parallel", "virtual_stages", virtual_stages, allowed_degree);
  read_word(reader, "parallel", "assignment", layout.assignment, {Assignment::consecutive, Assignment::round_robin});
  read_word(reader, "parallel", "recompute", layout.recompute, all_recompute_modes());
  std::vector<std::string> modes;
  reader.read("parallel", "recompute_per_stage", modes);
  if (modes.size() == static_cast<std::size_t>(layout.pipeline))
    for (const std::string& mode : modes)
      layout.recompute_per_stage.push_back(parse_recompute(mode).value_or(layout.recompute));
  reader.read("parallel", "layers_per_stage", layout.layers, {1, LargestModel::layers});
  reader.read("parallel", "zero_stage", zero_stage, {0, 3});
  reader.read("parallel", "keep_gathered", layout.keep_gathered);
  read_word(reader, "parallel", "shard_over", layout.shard_over, {ShardOver::all, ShardOver::node});
  reader.read("parallel", "sequence_parallel", layout.sequence_parallel);
  require(reader.read("batch", "global_batch_size", layout.global_batch, allowed_batch_size), "batch.global_batch_size",
          path);
  require(reader.read("batch", "micro_batch_size", layout.micro_batch, allowed_batch_size), "batch.micro_batch_size",
          path);
  read_word(reader, "precision", "compute", layout.precision, all_precisions());
  layout.virtual_stages = static_cast<int>(virtual_stages);
  layout.zero_stage = static_cast<int>(zero_stage);
  layout.zero_stage = layout.acting_zero_stage();
  return layout;
}

ModelConfig shape_of(ConfigReader& reader, const Path& path) {
  ModelConfig shape;
  Index layers = 0;
  require(reader.read("model", "num_layers", layers, {1, LargestModel::layers}), "model.num_layers", path);
  KeyReader keys(reader);
  keys.section("model", "");
  visit_model(shape, keys);
  return shape;
}

void read_emulation(ConfigReader& reader, RunSetup& setup) {
  double backward_input = 0;
  double backward_weight = 0;
  Index ranks_per_node = 0;
  reader.read_seconds("emulate", "forward", setup.emulated_forward, allowed_seconds);
  reader.read_seconds("emulate", "backward_input", backward_input, allowed_seconds);
  reader.read_seconds("emulate", "backward_weight", backward_weight, allowed_seconds);
  reader.read_seconds("emulate", "latency", setup.links.within_node.latency, allowed_seconds);
  reader.read("emulate", "bandwidth", setup.links.within_node.bytes_per_second, allowed_scale);
  reader.read_seconds("emulate", "node_latency", setup.links.between_nodes.latency, allowed_seconds);
  reader.read("emulate", "node_bandwidth", setup.links.between_nodes.bytes_per_second, allowed_scale);
  reader.read("emulate", "ranks_per_node", ranks_per_node, {0, allowed_degree.max});
  reader.read("emulate", "message_scale", setup.links.message_scale, allowed_scale);
  reader.read("emulate", "tensor_message_scale", setup.tensor_message_scale, allowed_scale);
  reader.read("emulate", "data_message_scale", setup.data_message_scale, allowed_scale);
  reader.read("emulate", "planned_microbatches", setup.planned_microbatches, allowed_steps);
  setup.tensor_message_scale *= setup.links.message_scale;
  setup.data_message_scale *= setup.links.message_scale;
  setup.emulated_backward = backward_input + backward_weight;
  setup.links.ranks_per_node = static_cast<int>(ranks_per_node);
}

}  // namespace

Index RunSetup::num_microbatches() const { return std::max<Index>(1, layout.num_microbatches()); }

std::vector<Index> RunSetup::layers_of_stages() const {
  const auto num_stages = static_cast<std::size_t>(layout.pipeline);
  if (num_stages == 1)
    return {shape.num_layers};
  if (layout.layers.empty() || layout.layers.size() % num_stages != 0)
    return {};
  std::vector<Index> layers(num_stages);
  for (std::size_t part = 0; part < layout.layers.size(); ++part)
    layers[part % num_stages] += layout.layers[part];
  return layers;
}

RunSetup recorded_setup(const std::string& config, const Path& path, int world_size) {
  ConfigReader reader = reader_of(config, path);
  RunSetup setup;
  setup.shape = shape_of(reader, path);
  setup.layout = layout_of(reader, world_size, path, setup.layout);
  require(reader.read("batch", "sequence_length", setup.sequence_length, allowed_batch_size), "batch.sequence_length",
          path);
  reader.read("precision", "gradient_reduction", setup.gradient_reduction);
  reader.read("precision", "initial_loss_scale", setup.initial_loss_scale, allowed_rate);
  reader.read("precision", "minimum_loss_scale", setup.minimum_loss_scale, allowed_rate);
  reader.read("optimizer", "learning_rate", setup.peak_learning_rate, allowed_rate);
  reader.read("optimizer", "warmup_steps", setup.warmup_steps, allowed_steps);
  reader.read("optimizer", "clip_grad_norm", setup.clip_grad_norm, allowed_rate);
  reader.read("optimizer", "decay_steps", setup.decay_steps, allowed_steps);
  reader.read("optimizer", "beta1", setup.beta1, {0, 1, false, true});
  reader.read("optimizer", "beta2", setup.beta2, {0, 1, false, true});
  reader.read("optimizer", "eps", setup.eps, {0, 1, true});
  reader.read("optimizer", "weight_decay", setup.weight_decay, {0, 1e3});
  reader.read("checkpoint", "interval", setup.checkpoint_interval, allowed_steps);
  reader.read_bytes("run", "device_memory", setup.device_memory, allowed_steps);
  reader.read("run", "attention", setup.attention);
  reader.read("run", "cluster", setup.cluster);
  reader.read("run", "trace_first_step", setup.trace_first_step, allowed_steps);
  reader.read("run", "trace_steps", setup.trace_steps, allowed_steps);
  reader.read("run", "steps", setup.total_steps, allowed_steps);
  if (Index tokens = 0; reader.read("run", "tokens", tokens, allowed_steps) && tokens > 0) {
    const Index by_tokens = (tokens + setup.tokens_per_step() - 1) / setup.tokens_per_step();
    setup.total_steps = setup.total_steps > 0 ? std::min(setup.total_steps, by_tokens) : by_tokens;
  }
  read_emulation(reader, setup);
  if (const std::vector<std::string> wrong = reader.problems(); !wrong.empty()) {
    const std::size_t colon = wrong.front().find(": ", path.string().size());  // behind the position
    throw_damaged(wrong.front().substr(0, colon), "config.toml is not one that `espalier train` resolved",
                  wrong.front().substr(colon + 2));
  }
  const std::vector<BrokenRule> impossible = broken_rules(setup.shape);
  if (!impossible.empty() || Index{setup.layout.pipeline} * setup.layout.virtual_stages > setup.shape.num_layers)
    throw_damaged(path.string(), "config.toml describes a model that cannot be built",
                  impossible.empty() ? "more stages than layers" : impossible.front().sentence());
  const std::vector<Index>& layers = setup.layout.layers;
  if (!layers.empty() && std::accumulate(layers.begin(), layers.end(), Index{0}) != setup.shape.num_layers)
    throw_damaged(path.string(), "parallel.layers_per_stage and model.num_layers disagree",
                  fmt::format("{} layers together, of {}", fmt::join(layers, " + "), setup.shape.num_layers));
  return setup;
}

}  // namespace espalier
