// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Which set each sample of a blend is drawn from, by the rule of Megatron's blends: sample g is of the set that lags
/// most behind its weight, by weight * max(g, 1) - (its samples so far), computed in doubles; of equals, the first.
///
/// After a cycle of samples all sets have their exact shares, so a sample is found by following the rule from the start
/// of its cycle: nothing grows with the number of samples. A cycle is the common denominator of the weights, if that is
/// at most a million; other weights are rounded to millionths.
///
/// The rule is followed from the sample asked for last where that is nearer: not for several threads at once.
class Blend {
 public:
  /// @param weights none negative, one above 0; they are divided by their sum
  /// @throws Error (usage) for a share above 0 that is less than half a millionth
  explicit Blend(std::vector<double> weights);

  struct Draw {
    std::size_t set = 0;
    Index index_in_set = 0;  ///< how many samples of the set were drawn before
  };
  Draw at(Index sample) const;

  /// How many samples of each set come before this one.
  std::vector<Index> drawn_before(Index sample) const;

  /// The shares of the sets, which add up to 1.
  const std::vector<double>& weights() const { return weights_; }

 private:
  void require_part(std::size_t set, Index part) const;
  void round_to_millionths();
  void seek(Index sample) const;
  std::size_t next_set() const;

  std::vector<double> weights_;
  std::vector<Index> parts_;  // drawn of each set in a cycle
  Index cycle_ = 0;
  Index period_ = 0;                   // cycles that doubles count exactly: then all begins anew
  mutable Index next_ = 0;             // a sample of the period,
  mutable std::vector<double> drawn_;  // and what was drawn of each set before it
};

}  // namespace espalier
