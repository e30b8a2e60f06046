// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "diagnosis/damaged_file.hpp"
#include "io/config/toml_config.hpp"
#include "models/layout_rules.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {
namespace {

// Without these keys no layout is known. Other missing keys get the defaults of this version.
constexpr std::pair<const char*, const char*> needed_keys[] = {
    {"model", "num_layers"},        {"parallel", "tensor"},        {"parallel", "pipeline"},    {"parallel", "data"},
    {"batch", "global_batch_size"}, {"batch", "micro_batch_size"}, {"batch", "sequence_length"}};

[[noreturn]] void throw_not_resolved(const std::string& where, const std::string& got, const RunFacts& facts) {
  throw_damaged(where, "config.toml is not one that `espalier train` resolved", got,
                "the keys of this version (`espalier train --keys`)",
                "restore the file from a copy, or read the run with the version that wrote it" +
                    (facts.program.empty() ? "" : ": " + facts.program));
}

RunConfig read_config(const std::string& text, const Path& file, const RunFacts& facts) {
  try {
    ConfigReader reader(text, file.string(), {});
    RunConfig config = read_resolved_config(reader);
    for (const auto& [section, key] : needed_keys)
      if (!reader.has(section, key))
        reader.problem(section, key, "is missing");
    if (config.sequence_length == 0)
      reader.problem("batch", "sequence_length", "got 0, wanted the length that the run had");
    if (const std::vector<std::string> wrong = reader.problems(); !wrong.empty()) {
      const std::size_t colon = wrong.front().find(": ", file.string().size());  // behind the position
      throw_not_resolved(wrong.front().substr(0, colon), wrong.front().substr(colon + 2), facts);
    }
    return config;
  } catch (const Error& error) {
    if (error.code() == ExitCode::data)
      throw;
    throw_not_resolved(error.report().where.empty() ? file.string() : error.report().where, error.report().what, facts);
  }
}

void require_possible(const RunConfig& config, const Path& file) {
  std::vector<BrokenRule> broken = broken_rules(config.model.shape);
  if (broken.empty())
    broken = broken_rules(config.model.shape, config.sequence_length, config.layout);
  if (!broken.empty())
    throw_damaged(file.string(), "config.toml describes a model or a layout that is not possible",
                  broken.front().sentence());
}

int ranks_of_degrees(const Layout& layout) {
  return static_cast<int>(std::min(Index{layout.tensor} * layout.pipeline * std::max(layout.data, 1), Index{1} << 20));
}

// Of the first node.
int count_ranks_per_node(const RunConfig& config, int world_size, const RunFacts& facts) {
  int ranks = 1;
  while (ranks < world_size && node_of(ranks, config, facts) == node_of(0, config, facts))
    ++ranks;
  return ranks;
}

}  // namespace

int node_of(int rank, const RunConfig& config, const RunFacts& facts) {
  if (config.emulate.ranks_per_node > 0)
    return node_of_rank(rank, config.emulate.ranks_per_node);
  const auto at = static_cast<std::size_t>(rank);
  return at < facts.host_of_rank.size() ? static_cast<int>(facts.host_of_rank[at]) : 0;
}

bool is_part_of_a_step(const RunConfig& config) {
  return config.emulate.planned_microbatches > config.layout.num_microbatches();
}

RunConfig recorded_config(const std::string& text, const Path& file, int world_size, const RunFacts& facts) {
  RunConfig config = read_config(text, file, facts);
  if (world_size == 0)
    world_size = ranks_of_degrees(config.layout);
  if (config.layout.tensor > world_size || config.layout.pipeline > world_size)
    throw_damaged(
        file.string(), "the layout needs more ranks than have records",
        fmt::format("tensor {}, pipeline {}, {} ranks", config.layout.tensor, config.layout.pipeline, world_size));
  config.ranks_per_node = count_ranks_per_node(config, world_size, facts);
  try {
    const MeshLayout mesh = make_layout(world_size, config.layout.tensor, config.layout.data, config.layout.pipeline);
    config.layout.data = mesh.degree(Axis::dp);
    // round_robin decides the virtual stages, which the rules are about.
    config.layout.virtual_stages = acting_layout(config.layout, config.model.shape).virtual_stages;
    require_possible(config, file);
    config.layout = make_run_layout(config, world_size);
  } catch (const Error& error) {
    if (error.code() == ExitCode::data)
      throw;
    throw_damaged(file.string(), error.report().what, error.report().got);
  }
  return config;
}

}  // namespace espalier
