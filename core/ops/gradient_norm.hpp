// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <vector>

#include "core/kokkos_compat.hpp"
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

  /// sums()(i) = sum of squares over range i, total()(0) = the sum of these in order; asynchronous on exec.
  template <class S>
  void compute(const ExecSpace& exec, Tensor<S, 1> values) const;

  Tensor<double, 1> sums() const { return sums_; }    ///< (ranges)
  Tensor<double, 1> total() const { return total_; }  ///< (1)

 private:
  Tensor<Index, 2> pieces_;       ///< (pieces, {offset, size})
  Tensor<Index, 1> first_piece_;  ///< (ranges + 1)
  Tensor<double, 1> partial_;     ///< (pieces)
  Tensor<double, 1> sums_;        ///< (ranges)
  Tensor<double, 1> total_;       ///< (1)
};

/// norm() = sqrt(total of sums) / scale; factor() = min(1, max_norm / norm) / scale, or 1 / scale where max_norm <= 0:
/// what gradients that were computed `scale` times too large are to be multiplied by. All on the device.
void clip_factor(const ExecSpace& exec, Tensor<double, 0> norm, Tensor<double, 0> factor, Tensor<double, 1> sums,
                 double max_norm, double scale = 1);

/// Above these, a step is to be judged before it is updated.
struct UpdateLimits {
  double loss = std::numeric_limits<double>::infinity();
  double gradient_norm = std::numeric_limits<double>::infinity();
};

/// May the step be updated without a judgement? Host and device decide alike.
KOKKOS_INLINE_FUNCTION bool is_within(const UpdateLimits& limits, double loss, double gradient_norm) {
  return compat::isfinite(loss) && compat::isfinite(gradient_norm) && loss <= limits.loss &&
         gradient_norm <= limits.gradient_norm;
}

/// factor() = 0, with which AdamW changes nothing, unless is_within(limits, loss(), norm()).
void hold_update(const ExecSpace& exec, Tensor<double, 0> factor, Tensor<double, 0> loss, Tensor<double, 0> norm,
                 const UpdateLimits& limits);

}  // namespace espalier
