// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/flat_storage.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace espalier {
namespace {

// The last of the ascending ranges that begins at or before the element; ranges.end(): none.
template <class Ranges, class Range>
auto last_before(const Ranges& ranges, Index element, const Range& range_of) {
  const auto next = std::upper_bound(ranges.begin(), ranges.end(), element,
                                     [&](Index value, const auto& entry) { return value < range_of(entry).begin; });
  return next == ranges.begin() ? ranges.end() : next - 1;
}

}  // namespace

template <class V>
FlatStorage<V>::FlatStorage(Category category, Index flat_size) : FlatStorage(category, flat_size, {}) {}

template <class V>
FlatStorage<V>::FlatStorage(Category category, Index flat_size, FlatSharding sharding)
    : held_(sharding.held(flat_size)), sharding_(std::move(sharding)) {
  ESPALIER_ASSERT(sharding_.units.empty() || sharding_.buffers > 0, "espalier::FlatStorage: units want a buffer");
  Index size = 0;
  for (const IndexRange& range : held_) {
    runs_.push_back({range, size});
    size += range.size();
  }
  std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.range.begin < b.range.begin; });
  values_ = allocate<V>(category, "parameters", size);
  if (!sharding_.units.empty())
    buffers_ = allocate<V>(category, "units", sharding_.buffers * sharding_.buffer_size());
}

template <class V>
FlatStorage<V>::FlatStorage(Tensor<V, 1> values)
    : held_{{0, static_cast<Index>(values.extent(0))}}, runs_{{held_.front(), 0}}, values_(std::move(values)) {}

template <class V>
Index FlatStorage<V>::offset_of(Index element) const {
  const auto run = last_before(runs_, element, [](const Run& entry) { return entry.range; });
  ESPALIER_ASSERT(run != runs_.end() && element < run->range.end, "espalier::FlatStorage: the element is not held");
  return run->offset + element - run->range.begin;
}

template <class V>
int FlatStorage<V>::unit_of(Index element) const {
  const auto unit = last_before(sharding_.units, element, [](const IndexRange& range) { return range; });
  return unit == sharding_.units.end() || element >= unit->end ? -1 : static_cast<int>(unit - sharding_.units.begin());
}

template <class V>
Index FlatStorage<V>::buffer_offset(Index element) const {
  const int unit = unit_of(element);
  ESPALIER_ASSERT(unit >= 0, "espalier::FlatStorage: the element is in no unit");
  return buffer_of(unit) * sharding_.buffer_size() + element - sharding_.units[static_cast<std::size_t>(unit)].begin;
}

template <class V>
V* FlatStorage<V>::data(Index element) const {
  return unit_of(element) < 0 ? values_.data() + offset_of(element) : buffers_.data() + buffer_offset(element);
}

#define ESPALIER_INSTANTIATE(V) template class FlatStorage<V>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
