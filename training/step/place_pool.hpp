// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace espalier {

/// Gives micro-batches places in turn: the same ones in every step.
class PlacePool {
 public:
  explicit PlacePool(int size) : holder_(static_cast<std::size_t>(size), none) {}

  /// The place that the micro-batch has, or the next free one.
  int take(int microbatch) {
    const auto held = std::find(holder_.begin(), holder_.end(), microbatch);
    if (held != holder_.end())
      return static_cast<int>(held - holder_.begin());
    for (std::size_t tries = 0; tries < holder_.size(); ++tries) {
      const std::size_t place = next_++ % holder_.size();
      if (holder_[place] == none) {
        holder_[place] = microbatch;
        return static_cast<int>(place);
      }
    }
    ESPALIER_ASSERT(false, fmt::format("no place is free for micro-batch {}", microbatch));
  }
  int of(int microbatch) const {
    const auto held = std::find(holder_.begin(), holder_.end(), microbatch);
    ESPALIER_ASSERT(held != holder_.end(), fmt::format("micro-batch {} has no place", microbatch));
    return static_cast<int>(held - holder_.begin());
  }
  void release(int microbatch) { holder_[static_cast<std::size_t>(of(microbatch))] = none; }

 private:
  static constexpr int none = -1;
  std::vector<int> holder_;  // by place
  std::size_t next_ = 0;
};

}  // namespace espalier
