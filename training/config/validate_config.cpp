// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/validate_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/nearest_sizes.hpp"
#include "io/config/toml_config.hpp"
#include "io/units.hpp"
#include "models/layout_rules.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {
namespace {

// The degrees in front of another number of ranks than theirs. They are in range, each by itself.
Index ranks_of(const Layout& c) { return Index{c.tensor} * std::max(1, c.data) * c.pipeline; }

// "tensor 2 x data 2 x pipeline 1; ...": those that pass every check of the config, the nearest first. Lists with an
// entry for each stage would have to follow.
std::string nearest_layouts(const RunConfig& c, int world_size) {
  std::vector<std::string> found;
  for (const MeshLayout& mesh : layouts_by_distance(world_size, c.layout.mesh().degrees)) {
    RunConfig other = c;
    other.layout.tensor = mesh.degree(Axis::tp);
    other.layout.data = mesh.degree(Axis::dp);
    other.layout.pipeline = mesh.degree(Axis::pp);
    other.layout.layers.clear();
    other.layout.recompute_per_stage.clear();
    if (found.size() < 3 && is_valid_layout(other, world_size))
      found.push_back(mesh.text());
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

// What to do about a mesh of another number of ranks: start on that number, or share these ranks otherwise.
std::string mesh_advice(const RunConfig& c, int world_size) {
  const Index wanted = ranks_of(c.layout);
  std::string start;
  if (wanted <= most_ranks && is_valid_layout(c, static_cast<int>(wanted)))
    start = fmt::format("start on {}{}: mpiexec -n {} espalier ..., or --dry-run --ranks {}", counted(wanted, "rank"),
                        c.layout.data > 0 ? "" : " or a multiple", wanted, wanted);
  if (world_size == 1 && !start.empty())  // forgotten, more likely than meant
    return start;
  const std::string nearest = nearest_layouts(c, world_size);
  const std::string share =
      nearest.empty() ? fmt::format("no layout of {} fits this model and batch", counted(world_size, "rank"))
                      : fmt::format("nearest layouts of {} that fit: {}", counted(world_size, "rank"), nearest);
  return start.empty() ? share : share + "; or " + start;
}

std::optional<MeshLayout> check_mesh(const RunConfig& c, ConfigReader& reader, int world_size) {
  const Layout& p = c.layout;
  const Index fixed = Index{p.tensor} * p.pipeline;
  const bool divides = world_size % fixed == 0;
  if (divides && (p.data == 0 || fixed * p.data == world_size))
    return make_layout(world_size, p.tensor, p.data, p.pipeline, p.order);
  const std::string factors = p.data > 0 ? fmt::format("tensor {} x data {} x pipeline {} takes {}", p.tensor, p.data,
                                                       p.pipeline, counted(ranks_of(p), "rank"))
                                         : fmt::format("tensor {} x pipeline {} takes {} or a multiple", p.tensor,
                                                       p.pipeline, counted(ranks_of(p), "rank"));
  const char* const key = divides ? "data" : world_size % p.tensor != 0 ? "tensor" : "pipeline";
  reader.problem("parallel", key,
                 fmt::format("{}, but there {} {}; {}", factors, world_size == 1 ? "is" : "are", world_size,
                             mesh_advice(c, world_size)),
                 {"parallel.tensor", "parallel.pipeline", "parallel.data"});
  return std::nullopt;
}

// Ranges keep single keys sane; here what several of them make together.
void check_sizes(const RunConfig& c, ConfigReader& reader) {
  constexpr double countable = 0x1p62;  // of a 63-bit integer, with a margin for factors of ours
  const ModelConfig& shape = c.model.shape;
  const auto channels = static_cast<double>(shape.hidden_size);
  const double of_a_layer = 24 * channels + 8 * static_cast<double>(shape.ffn_hidden_size);
  const double of_a_token =
      static_cast<double>(shape.num_layers) * of_a_layer + 8 * channels + 4 * static_cast<double>(shape.vocab_size);
  const auto tokens = static_cast<double>(std::max(c.layout.global_batch, c.layout.micro_batch)) *
                      static_cast<double>(c.sequence_length);
  if (tokens * of_a_token * sizeof(double) > countable)
    reader.problem("batch", "global_batch_size",
                   fmt::format("{} sequences x {} tokens through {} layers of {} channels are more bytes than can be "
                               "counted; lower one of them",
                               c.layout.global_batch, c.sequence_length, shape.num_layers, shape.hidden_size));
  else if ((c.run.steps > 0 || c.run.tokens > 0) && static_cast<double>(c.total_steps()) * tokens > countable)
    reader.problem(
        "run", c.run.steps > 0 ? "steps" : "tokens",
        fmt::format("{} steps of {} tokens are more tokens than can be counted", c.total_steps(), c.tokens_per_step()));
}

void check_learning_rate(const RunConfig::Optimizer& c, ConfigReader& reader) {
  if (c.minimum_learning_rate > c.learning_rate)
    reader.problem("optimizer", "minimum_learning_rate",
                   fmt::format("{} is above learning_rate {}", c.minimum_learning_rate, c.learning_rate),
                   {"optimizer.learning_rate"});
  if (c.decay_steps > 0 && c.decay_steps < c.warmup_steps)
    reader.problem("optimizer", "decay_steps",
                   fmt::format("{} is before the end of the warm-up: the decay starts at warmup_steps = {}; 0 lets it "
                               "end with the run",
                               c.decay_steps, c.warmup_steps),
                   {"optimizer.warmup_steps"});
}

void check_round_robin(const RunConfig& c, ConfigReader& reader) {
  if (c.layout.virtual_stages != 1 || !c.layout.layers.empty())
    reader.problem("parallel", "assignment",
                   "round_robin makes each layer a chunk of its own: leave out virtual_stages and layers_per_stage");
  if (c.model.shape.num_layers % c.layout.pipeline != 0)
    reader.problem("parallel", "assignment",
                   fmt::format("round_robin deals {} layers out to {} stages unevenly; the nearest numbers of layers "
                               "that divide: {}",
                               c.model.shape.num_layers, c.layout.pipeline,
                               fmt::join(nearest_multiples(c.model.shape.num_layers, c.layout.pipeline), " and ")),
                   {"model.num_layers", "parallel.pipeline"});
}

// Factors of two can be taken off a gradient again without rounding it.
void check_loss_scale(const LossScaleConfig& c, ConfigReader& reader) {
  const auto check = [&](const char* key, double scale) {
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5 && scale <= LossScaleConfig::largest)
      return;
    const double near = std::min(std::ldexp(1.0, exponent - 1), LossScaleConfig::largest);
    reader.problem(
        "precision", key,
        fmt::format("got {}, wanted a power of two of at most {:.0f} (2^32){}", scale, LossScaleConfig::largest,
                    scale > 0 && std::isfinite(scale) ? fmt::format("; near it: {}", near) : std::string()));
  };
  check("initial_loss_scale", c.initial);
  check("minimum_loss_scale", c.minimum);
  if (c.minimum > c.initial)
    reader.problem("precision", "minimum_loss_scale",
                   fmt::format("{} is above initial_loss_scale {}", c.minimum, c.initial),
                   {"precision.initial_loss_scale"});
}

void check_emulation(const RunConfig& c, ConfigReader& reader) {
  const Index parts = Index{c.layout.pipeline} * c.layout.virtual_stages;
  const auto check = [&](const char* key, const std::vector<Index>& percent) {
    const auto given = static_cast<Index>(percent.size());
    if (given > 0 && given != parts)
      reader.problem("emulate", key,
                     fmt::format("{} numbers for {} parts of the model (pipeline x virtual_stages)", given, parts),
                     {"parallel.pipeline", "parallel.virtual_stages"});
  };
  check("part_percent", c.emulate.part_percent);
  check("backward_percent", c.emulate.backward_percent);
}

void check_injected_faults(const RunConfig::Emulate& emulate, ConfigReader& reader, int world_size) {
  if (emulate.slow_rank >= world_size)
    reader.problem("emulate", "slow_rank", fmt::format("there is no rank {} of {}", emulate.slow_rank, world_size));
  const std::vector<Index>& link = emulate.delayed_link;
  const auto is_rank = [&](Index rank) { return rank < world_size; };
  if (!link.empty() && (link.size() != 2 || link[0] == link[1] || !std::all_of(link.begin(), link.end(), is_rank)))
    reader.problem("emulate", "delayed_link",
                   fmt::format("[{}] are not two ranks of {}", fmt::join(link, ", "), world_size));
}

// What [batch] and [parallel] must be on these ranks for this model.
void check_layout(const RunConfig& c, ConfigReader& reader, int world_size) {
  const std::optional<MeshLayout> mesh = check_mesh(c, reader, world_size);
  Layout layout = c.layout;
  if (layout.micro_batch == 0)
    layout.micro_batch = fitting_micro_batch(c, world_size);
  if (layout.data == 0)
    reader.derive("parallel", "data", {"parallel.tensor", "parallel.pipeline"});
  // On a mesh that is wrong there are the replicas that were asked for.
  layout.data = mesh ? mesh->degree(Axis::dp) : std::max(1, layout.data);
  if (layout.assignment == Assignment::round_robin) {
    check_round_robin(c, reader);
    layout.virtual_stages = round_robin_chunks(c.model.shape, layout.pipeline);
    layout.layers.clear();
  }
  for (const BrokenRule& rule : broken_rules(c.model.shape, c.sequence_length, layout))
    reader.rule_problem(rule.section, rule.key, rule.message, rule.others);
}

// The lists parallel to data.train.
void check_blend(const RunConfig::Data& data, ConfigReader& reader) {
  if (!data.weights.empty() && !data.epochs.empty())
    reader.problem("data", "epochs", "weights and epochs exclude each other, wanted one of them", {"data.weights"});
  for (const auto& [key, values] : {std::pair("weights", &data.weights), {"epochs", &data.epochs}}) {
    if (values->empty())
      continue;
    const double sum = std::accumulate(values->begin(), values->end(), 0.0);
    if (values->size() != data.train.size())
      reader.problem(
          "data", key,
          fmt::format("{} numbers for {} entries of data.train, wanted one each", values->size(), data.train.size()),
          {"data.train"});
    else if (sum == 0)
      reader.problem("data", key, "all are 0, wanted one above it");
    else if (key == std::string("weights") && std::abs(sum - 1) > 1e-3)
      reader.problem("data", key, fmt::format("they add up to {:.6g}, wanted 1 (within 0.001)", sum));
  }
}

void check_data(const RunConfig& c, ConfigReader& reader) {
  check_blend(c.data, reader);
  if (c.data.document_end >= c.model.shape.vocab_size)
    reader.problem(
        "data", "document_end",
        fmt::format("{} is not a token id: model.vocab_size is {}", c.data.document_end, c.model.shape.vocab_size),
        {"model.vocab_size"});
  if (c.data.validation_fraction > 0 && !c.data.validation.empty())
    reader.problem("data", "validation_fraction", "data.validation names files, wanted one of the two",
                   {"data.validation"});
}

}  // namespace

Index fitting_micro_batch(const RunConfig& c, int world_size) {
  constexpr Index most = 8;
  const Index replicas =
      c.layout.data > 0 ? c.layout.data : std::max<Index>(1, world_size / (Index{c.layout.tensor} * c.layout.pipeline));
  Index size = std::clamp<Index>(c.layout.global_batch / replicas / c.layout.pipeline, 1, most);
  while (size > 1 && c.layout.global_batch % (replicas * size) != 0)
    --size;
  return size;
}

void validate_run_config(const RunConfig& c, ConfigReader& reader, int world_size) {
  for (const BrokenRule& rule : broken_rules(c.model.shape))
    reader.rule_problem(rule.section, rule.key, rule.message, rule.others);
  for (const UnsupportedPart& part : unsupported_parts(c.model.shape))
    reader.problem(
        "model", part.key,
        fmt::format("got {}, wanted {}: {} can be planned, not trained", part.value, part.wanted, part.words));
  if (c.run.directory.empty())
    reader.problem("run", "directory", "is empty, wanted a directory for all files of this run");
  if (c.data.train.empty())
    reader.problem("data", "train", "no token file is given, wanted at least one");
  for (const auto& [key, files] : {std::pair("train", &c.data.train), {"validation", &c.data.validation}})
    if (std::ranges::find(*files, "") != files->end())
      reader.problem("data", key, "a token file has no name");
  check_data(c, reader);
  if (const auto rule = broken_length_rule(c.model.shape, c.sequence_length))
    reader.rule_problem(rule->section, rule->key, rule->message, rule->others);
  if (c.run.steps == 0 && c.run.tokens == 0)
    reader.problem("run", "steps", "neither steps nor tokens say when the run ends", {"run.tokens"});
  check_sizes(c, reader);
  check_learning_rate(c.optimizer, reader);
  check_loss_scale(c.precision.loss_scale, reader);
  check_layout(c, reader, world_size);
  check_emulation(c, reader);
  check_injected_faults(c.emulate, reader, world_size);
}

bool is_valid_layout(const RunConfig& c, int world_size) {
  ConfigReader reader("", "layout", {});
  check_layout(c, reader, world_size);
  return !reader.has_problems();
}

}  // namespace espalier
