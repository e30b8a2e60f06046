// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/parameter_spec.hpp"

namespace espalier {

/// Where the flat arrays may be cut: at the start of a row of a parameter. Without parameters, anywhere.
class FlatRows {
 public:
  /// @param parameters in flat order; they must outlive this.
  FlatRows(const std::vector<Parameter>& parameters, Index flat_end) : parameters_(parameters), flat_end_(flat_end) {}

  Index at_or_before(Index position) const {
    if (parameters_.empty() || position >= flat_end_)
      return std::min(position, flat_end_);
    const Parameter& parameter = parameters_[find(position)];
    return parameter.offset + row_index(parameter, position) * row_size(parameter);
  }

  Index at_or_after(Index position) const {
    const Index before = at_or_before(position);
    if (before == position || parameters_.empty())
      return position;
    const std::size_t i = find(position);
    const Parameter& parameter = parameters_[i];
    if (row_index(parameter, position) + 1 < parameter.size / row_size(parameter))
      return before + row_size(parameter);
    return i + 1 < parameters_.size() ? parameters_[i + 1].offset : flat_end_;
  }

  Index nearest(Index position) const {
    const Index before = at_or_before(position);
    const Index after = at_or_after(position);
    return after - position < position - before ? after : before;
  }

  /// Part `part` of `range` cut into `parts`, which are as equal as cuts at rows and cache lines allow.
  IndexRange slice(IndexRange range, Index part, Index parts) const {
    const auto bound = [&](Index at) {
      constexpr Index cache_line_elements = 16;
      const Index target = range.size() / parts * at + range.size() % parts * at / parts;
      return at == 0       ? range.begin
             : at == parts ? range.end
                           : nearest(range.begin + target / cache_line_elements * cache_line_elements);
    };
    return {bound(part), bound(part + 1)};
  }

 private:
  static Index row_size(const Parameter& parameter) {
    return parameter.local_shape.size() < 2 ? 1 : std::max<Index>(1, parameter.local_shape.back());
  }
  // Of the row that holds `position`; the padding belongs to the last.
  static Index row_index(const Parameter& parameter, Index position) {
    return std::min(position - parameter.offset, parameter.size - 1) / row_size(parameter);
  }
  // The last parameter that starts at or before `position`.
  std::size_t find(Index position) const {
    const auto contains = [&](std::size_t i) {
      return parameters_[i].offset <= position && (i + 1 == parameters_.size() || position < parameters_[i + 1].offset);
    };
    if (contains(last_))
      return last_;
    const auto next =
        std::upper_bound(parameters_.begin(), parameters_.end(), position,
                         [](Index value, const Parameter& parameter) { return value < parameter.offset; });
    ESPALIER_ASSERT(next != parameters_.begin(), "espalier::plan_reduction: parameters must cover the flat arrays");
    last_ = static_cast<std::size_t>(next - parameters_.begin()) - 1;
    return last_;
  }

  const std::vector<Parameter>& parameters_;
  Index flat_end_;
  mutable std::size_t last_ = 0;  // found: cuts come in order
};

}  // namespace espalier
