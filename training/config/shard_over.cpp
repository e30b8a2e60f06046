// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/shard_over.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "io/units.hpp"
#include "models/layout_rules.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/host_ranks.hpp"

namespace espalier {
namespace {

constexpr const char* setting = "parallel.shard_over = \"node\"";

Index known_ranks_per_node(const RunConfig& config) {
  return config.emulate.ranks_per_node > 0 ? config.emulate.ranks_per_node : config.ranks_per_node;
}

// Ranks on each node, if all hold as many, with consecutive numbers; else 0.
int ranks_of_like_nodes(const Communicator& world, const Communicator& host) {
  const int most = all_reduce(world, host.size(), ReduceOp::max);
  const int first = host.world_rank(0);
  const bool is_like = host.size() == most && first % most == 0 && host.world_rank(most - 1) == first + most - 1;
  return all_reduce(world, is_like ? most : 0, ReduceOp::min);
}

}  // namespace

int ranks_per_node(const Communicator& world, const Communicator& host) {
  const int most = all_reduce(world, host.size(), ReduceOp::max);
  const auto largest_of = [&](int value) { return all_reduce(world, value, ReduceOp::max); };
  const auto refuse = [&](const std::string& got) {
    throw Error(ExitCode::usage,
                {.what = "the nodes of this job do not have the same number of consecutive ranks",
                 .where = setting,
                 .got = got,
                 .wanted = "the same number of ranks on each node, with consecutive numbers",
                 .todo = "start the same number of ranks on each node, or set parallel.shard_over = \"all\""});
  };
  const int odd_rank = largest_of(host.size() == most ? -1 : world.rank());
  const int its_ranks = largest_of(odd_rank == world.rank() ? host.size() : 0);
  if (odd_rank >= 0)
    refuse(fmt::format("{} on the node of rank {}, {} on another", counted(its_ranks, "rank"), odd_rank, most));
  const bool is_block = host.world_rank(0) % most == 0 && host.world_rank(most - 1) == host.world_rank(0) + most - 1;
  const int scattered = largest_of(is_block ? -1 : world.rank());
  if (scattered >= 0)
    refuse(fmt::format("rank {} shares its node with ranks that are not its neighbours", scattered));
  return most;
}

void resolve_ranks_per_node(RunConfig& config, const Communicator& world) {
  if (config.layout.shard_over == ShardOver::node && known_ranks_per_node(config) == 0)
    config.ranks_per_node = ranks_per_node(world, host_ranks(world));
  else if (known_ranks_per_node(config) == 0 && world.size() > config.max_summed_at_once)
    config.ranks_per_node = ranks_of_like_nodes(world, host_ranks(world));
  if (world.context().device_links != nullptr)
    config.max_summed_at_once = world.size();
}

Layout with_shards(const RunConfig& config, const Layout& layout) {
  const auto ranks_per_node = static_cast<int>(known_ranks_per_node(config));
  if (layout.shards_within_nodes() && ranks_per_node == 0)
    throw Error(ExitCode::usage, {.what = "the number of ranks per node is unknown",
                                  .where = setting,
                                  .got = fmt::format("{} ranks", layout.num_devices()),
                                  .wanted = "the number of ranks on each node",
                                  .todo = "espalier train CONFIG --dry-run --ranks N --ranks-per-node M"});
  if (std::string problem = why_unlike_nodes(layout, ranks_per_node); !problem.empty())
    throw Error(ExitCode::usage,
                {.what = std::move(problem),
                 .where = setting,
                 .got = fmt::format("{} on nodes of {} ranks", layout.mesh().text(), ranks_per_node),
                 .wanted = "the same number of replicas of each stage on every node",
                 .todo = "change the layout or the ranks of a node, or set parallel.shard_over = \"all\""});
  return with_shards(layout, ranks_per_node, config.max_summed_at_once);
}

}  // namespace espalier
