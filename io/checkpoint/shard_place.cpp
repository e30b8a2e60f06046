// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/shard_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace espalier {
namespace {

std::string shard_name(Index rank) { return fmt::format("rank-{:05}.h5", rank); }

int count_writers(std::span<const Index> num_blocks) {
  return static_cast<int>(std::count_if(num_blocks.begin(), num_blocks.end(), [](Index blocks) { return blocks > 0; }));
}

// The ranks that share a file with `rank`.
std::span<const Index> group_of(std::span<const Index> num_blocks, Index rank, Index ranks_per_file) {
  const Index first = rank / ranks_per_file * ranks_per_file;
  const Index size = std::min(ranks_per_file, static_cast<Index>(num_blocks.size()) - first);
  return num_blocks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
}

}  // namespace

ShardPlace own_file(int writer) { return {.file = shard_name(writer)}; }

ShardPlace shard_place(std::span<const Index> num_blocks, int writer, Index ranks_per_file) {
  const std::span<const Index> group = group_of(num_blocks, writer, ranks_per_file);
  const auto in_group = static_cast<std::size_t>(writer % ranks_per_file);
  const std::span<const Index> before = group.first(in_group);
  return {.file = shard_name(writer - static_cast<Index>(in_group)),
          .first_block = std::accumulate(before.begin(), before.end(), Index{0}),
          .turn = count_writers(before),
          .completes = count_writers(group.subspan(in_group + 1)) == 0};
}

int num_turns(std::span<const Index> num_blocks, Index ranks_per_file) {
  int turns = 0;
  for (Index first = 0; first < static_cast<Index>(num_blocks.size()); first += ranks_per_file)
    turns = std::max(turns, count_writers(group_of(num_blocks, first, ranks_per_file)));
  return turns;
}

}  // namespace espalier
