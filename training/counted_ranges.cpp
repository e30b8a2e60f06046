// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/counted_ranges.hpp"

#include <numeric>

namespace espalier {
namespace {

bool counts(const ParameterSpec& spec, const PerAxis& place, const PerGroup<GroupPlace>& places, bool by_slice) {
  const bool first_of_group = places[spec.group].rank == 0;
  const bool summed_over_tensor = spec.group == ReductionGroup::replicas_and_tensor;
  const bool first_copy = spec.shard.parts > 1 || summed_over_tensor || place[Axis::tp] == 0;
  return first_copy && (by_slice || first_of_group);
}

}  // namespace

std::vector<IndexRange> counted_ranges(const std::vector<Parameter>& parameters, const std::vector<IndexRange>& ranges,
                                       const MeshLayout& layout, int rank, bool by_slice) {
  const PerGroup<GroupPlace> places = layout.reduction_places(rank);
  std::vector<IndexRange> result;
  for (const Parameter& parameter : parameters) {
    if (!counts(parameter.spec, layout.coordinates(rank), places, by_slice))
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
