// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/block_copy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/types.hpp"
#include "core/with_scalar_type.hpp"

namespace espalier {
namespace {

template <class From, class To>
void convert(const void* source, Index from, void* target, Index to, Index size) {
  const From* const in = static_cast<const From*>(source) + from;
  To* const out = static_cast<To*>(target) + to;
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(out, in, static_cast<std::size_t>(size) * sizeof(To));
  } else {
    for (Index i = 0; i < size; ++i) {
      if constexpr (std::is_same_v<To, bfloat16>)
        out[i] = bfloat16(static_cast<float>(in[i]));
      else
        out[i] = static_cast<To>(in[i]);
    }
  }
}

using Convert = void (*)(const void*, Index, void*, Index, Index);

Convert converter(ScalarType from, ScalarType to) {
  return with_scalar_type(from, [&]<class From>() {
    return with_scalar_type(to, []<class To>() -> Convert { return convert<From, To>; });
  });
}

// Offset of the tensor's element `at` in a box's array.
Index offset_in(const Box& box, const std::vector<Index>& at) {
  Index offset = 0;
  for (std::size_t d = 0; d < at.size(); ++d)
    offset = offset * box.count[d] + at[d] - box.start[d];
  return offset;
}

template <class S>
bool all_between(const void* values, Index size, double least) {
  const S* const begin = static_cast<const S*>(values);
  return std::all_of(begin, begin + size, [=](S value) {
    return std::isfinite(static_cast<double>(value)) && static_cast<double>(value) >= least;
  });
}

}  // namespace

bool is_finite(ScalarType type, const void* values, Index size, double least) {
  return with_scalar_type(type, [&]<class S>() { return all_between<S>(values, size, least); });
}

void copy_overlap(const Box& source_box, ScalarType source_type, const void* source, const Box& target_box,
                  ScalarType target_type, void* target) {
  ESPALIER_ASSERT(overlaps(source_box, target_box), "the boxes share nothing");
  const Convert copy = converter(source_type, target_type);
  const std::size_t rank = source_box.start.size();
  if (rank == 0)
    return copy(source, 0, target, 0, 1);
  std::vector<Index> first(rank), end(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    first[d] = std::max(source_box.start[d], target_box.start[d]);
    end[d] = std::min(source_box.start[d] + source_box.count[d], target_box.start[d] + target_box.count[d]);
  }
  // Trailing dimensions that both boxes hold in full run on in memory: they are copied as one row.
  std::size_t last = rank - 1;
  Index row = end[last] - first[last];
  while (last > 0 && row > 0 && source_box.count[last] == end[last] - first[last] &&
         target_box.count[last] == end[last] - first[last]) {
    --last;
    row *= end[last] - first[last];
  }
  std::vector<Index> at = first;
  while (true) {
    copy(source, offset_in(source_box, at), target, offset_in(target_box, at), row);
    std::size_t d = last;
    while (d > 0 && ++at[d - 1] == end[d - 1]) {
      at[d - 1] = first[d - 1];
      --d;
    }
    if (d == 0)
      return;
  }
}

}  // namespace espalier
