// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_setup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "diagnosis/damaged_file.hpp"
#include "io/config/key_reader.hpp"
#include "models/layout_rules.hpp"
#include "models/layout_section.hpp"
#include "models/model_section.hpp"

namespace espalier {
namespace {

// Those of `train` (training/config/run_config.cpp), below whose rooms this is.
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

void require_no_problems(const ConfigReader& reader, const Path& path) {
  const std::vector<std::string> wrong = reader.problems();
  if (wrong.empty())
    return;
  const std::size_t colon = wrong.front().find(": ", path.string().size());  // behind the position
  throw_damaged(wrong.front().substr(0, colon), "config.toml is not one that `espalier train` resolved",
                wrong.front().substr(colon + 2));
}

ConfigReader reader_of(const std::string& config, const Path& path) {
  try {
    return ConfigReader(config, path.string(), {});
  } catch (const Error& error) {  // here it is no mistake of whoever runs the command
    throw_damaged(error.report().where.empty() ? path.string() : error.report().where, error.report().what,
                  error.report().got);
  }
}

// Reads the keys of a layout. A word that this version does not know is a problem of the config.
class LayoutKeys : public KeyReader {
 public:
  using KeyReader::KeyReader;
  void recompute_modes(const char* key, std::vector<Recompute>& modes, const char*) {
    std::vector<std::string> words;
    reader_.read(section_, key, words);
    for (const std::string& word : words) {
      const std::optional<Recompute> mode = parse_recompute(word);
      modes.push_back(mode.value_or(Recompute::none));
      if (!mode)
        reader_.problem(section_, key, fmt::format("got \"{}\"", word));
    }
  }
  void order(const char* key, AxisOrder& order, const char*) {
    std::string word = to_string(order);
    reader_.read(section_, key, word);
    try {
      order = axis_order_from(word);
    } catch (const Error& error) {
      reader_.problem(section_, key, fmt::format("got {}", error.report().got));
    }
  }
};

// With parallel.data left open, the number of ranks that wrote decides; 0: unknown.
void resolve_replicas(Layout& layout, int world_size, const Path& path) {
  if (world_size == 0)
    world_size =
        static_cast<int>(std::min(Index{layout.tensor} * layout.pipeline * std::max(layout.data, 1), Index{1} << 20));
  if (layout.tensor > world_size || layout.pipeline > world_size)
    throw_damaged(path.string(), "the layout needs more ranks than have records",
                  fmt::format("tensor {}, pipeline {}, {} ranks", layout.tensor, layout.pipeline, world_size));
  try {
    layout.data = make_layout(world_size, layout.tensor, layout.data, layout.pipeline).degree(Axis::dp);
  } catch (const Error& error) {
    throw_damaged(path.string(), error.report().what, error.report().got);
  }
}

Layout layout_of(ConfigReader& reader, const ModelConfig& model, int world_size, const Path& path) {
  Layout layout{
      .tensor = 0, .data = -1, .pipeline = 0, .micro_batch = 0, .global_batch = 0, .precision = Precision::fp32};
  LayoutKeys keys(reader);
  keys.section("batch", "");
  visit_batch(layout, keys);
  visit_parallel(layout, keys);
  keys.section("precision", "");
  visit_compute(layout, keys);
  require_no_problems(reader, path);
  require(layout.tensor > 0, "parallel.tensor", path);
  require(layout.pipeline > 0, "parallel.pipeline", path);
  require(layout.data >= 0, "parallel.data", path);
  require(layout.global_batch > 0, "batch.global_batch_size", path);
  require(layout.micro_batch > 0, "batch.micro_batch_size", path);
  resolve_replicas(layout, world_size, path);
  if (layout.recompute_per_stage.size() != static_cast<std::size_t>(layout.pipeline))
    layout.recompute_per_stage.clear();
  return acting_layout(layout, model);
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
  reader.read("emulate", "ranks_per_node", ranks_per_node, {0, 1 << 20});
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
  if (layout.layers.empty())
    return {};
  std::vector<Index> layers(num_stages);
  for (int part = 0; part < layout.num_parts(); ++part)
    layers[static_cast<std::size_t>(layout.stage_of_part(part))] += layout.layers[static_cast<std::size_t>(part)];
  return layers;
}

RunSetup recorded_setup(const std::string& config, const Path& path, int world_size) {
  ConfigReader reader = reader_of(config, path);
  RunSetup setup;
  setup.shape = shape_of(reader, path);
  setup.layout = layout_of(reader, setup.shape, world_size, path);
  require(reader.read("batch", "sequence_length", setup.sequence_length, ModelRange::positions),
          "batch.sequence_length", path);
  const auto is = [&](const char* section, const char* key, const char* wanted) {
    std::string word;
    reader.read(section, key, word);
    return word == wanted;
  };
  setup.settings = {.rounds_gradients = is("precision", "gradient_reduction", "compute"),
                    .fp32_residual = is("precision", "residual", "state"),
                    .separate_documents = is("data", "documents", "separate"),
                    .cudnn_attention = !is("run", "attention", "own")};
  reader.read("checkpoint", "async", setup.settings.copies_state);
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
  reader.read("run", "cluster", setup.cluster);
  reader.read("run", "trace_first_step", setup.trace_first_step, allowed_steps);
  reader.read("run", "trace_steps", setup.trace_steps, allowed_steps);
  reader.read("run", "steps", setup.total_steps, allowed_steps);
  if (Index tokens = 0; reader.read("run", "tokens", tokens, allowed_steps) && tokens > 0) {
    const Index by_tokens = (tokens + setup.tokens_per_step() - 1) / setup.tokens_per_step();
    setup.total_steps = setup.total_steps > 0 ? std::min(setup.total_steps, by_tokens) : by_tokens;
  }
  read_emulation(reader, setup);
  require_no_problems(reader, path);
  const std::vector<BrokenRule> impossible = broken_rules(setup.shape);
  if (!impossible.empty() || Index{setup.layout.pipeline} * setup.layout.virtual_stages > setup.shape.num_layers)
    throw_damaged(path.string(), "config.toml describes a model that cannot be built",
                  impossible.empty() ? "more stages than layers" : impossible.front().sentence());
  const std::vector<Index>& layers = setup.layout.layers;
  if (!layers.empty() && std::ssize(layers) != setup.layout.num_parts())
    throw_damaged(path.string(), "parallel.layers_per_stage has another length than the model has parts",
                  fmt::format("{} numbers for {} parts", layers.size(), setup.layout.num_parts()));
  if (!layers.empty() && std::accumulate(layers.begin(), layers.end(), Index{0}) != setup.shape.num_layers)
    throw_damaged(path.string(), "parallel.layers_per_stage and model.num_layers disagree",
                  fmt::format("{} layers together, of {}", fmt::join(layers, " + "), setup.shape.num_layers));
  return setup;
}

}  // namespace espalier
