// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/tensor.hpp"

// The global 2-norm of the gradient and the factor that clips it (Pascanu, Mikolov and Bengio, 2013).

namespace espalier {

/// Sums of squares of ranges of a flat array, in fp64. A range is cut into pieces of a fixed length from its own start,
/// added in order: its sum depends neither on the number of threads nor on where the range lies. A tensor that is cut
/// between ranks is as many ranges, and its sum differs in rounding from that of the whole.
class SquaredNorm {
 public:
  /// One sum for each range [offset, offset + size).
  struct Range {
    Index offset;
    Index size;
  };
  SquaredNorm(const ExecSpace& exec, const std::vector<Range>& ranges);

  /// sums()(i) = sum of squares over range i; asynchronous on exec.
  template <class S>
  void compute(const ExecSpace& exec, Tensor<S, 1> values) const;

  Tensor<double, 1> sums() const { return sums_; }  ///< (ranges)

 private:
  Tensor<Index, 2> pieces_;       ///< (pieces, {offset, size})
  Tensor<Index, 1> first_piece_;  ///< (ranges + 1)
  Tensor<double, 1> partial_;     ///< (pieces)
  Tensor<double, 1> sums_;        ///< (ranges)
};

/// norm() = sqrt(total of sums) / scale; factor() = min(1, max_norm / norm) / scale, or 1 / scale where max_norm <= 0:
/// what gradients that were computed `scale` times too large are to be multiplied by. All on the device.
void clip_factor(const ExecSpace& exec, Tensor<double, 0> norm, Tensor<double, 0> factor, Tensor<double, 1> sums,
                 double max_norm, double scale = 1);

}  // namespace espalier
