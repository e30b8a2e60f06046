// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/unique_ranges.hpp"

#include <numeric>

namespace espalier {
namespace {

bool stands_for_all(const ParameterSpec& spec, const MeshLayout& layout, int rank, bool by_slice) {
  const GroupRank ours = layout.group_rank(rank, spec.group());
  const bool is_cut = spec.shard.parts > 1 && spec.shard.axis == Axis::tp;
  const bool first_copy = is_cut || spec.partial.contains(Axis::tp) || layout.coordinates(rank)[Axis::tp] == 0;
  const bool holds_it_first = ours.second_rank == 0 && (by_slice || ours.rank == 0);
  return first_copy && (holds_it_first || (by_slice && !ours.is_hybrid_sharded));
}

}  // namespace

std::vector<IndexRange> unique_ranges(const std::vector<Parameter>& parameters, const std::vector<IndexRange>& ranges,
                                      const MeshLayout& layout, int rank, bool by_slice) {
  std::vector<IndexRange> result;
  for (const Parameter& parameter : parameters) {
    if (!stands_for_all(parameter.spec, layout, rank, by_slice))
      continue;
    for (const IndexRange& range : ranges) {
      const IndexRange common = intersection(range, parameter.flat_range());
      if (common.size() > 0)
        result.push_back(common);
    }
  }
  return result;
}

Index total_size(const std::vector<IndexRange>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), Index{0},
                         [](Index sum, const IndexRange& range) { return sum + range.size(); });
}

}  // namespace espalier
