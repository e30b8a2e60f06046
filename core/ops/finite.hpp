// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

namespace espalier {

/// The index of the first value that is infinite or no number; the size of the array where all are finite. Waits for
/// `exec`.
template <class S>
Index first_not_finite(const ExecSpace& exec, Tensor<S, 1> values);

/// The index of the first element whose moments no gradients have left: a second moment below zero, or a first one of
/// more than `largest_moment_ratio` times the root of the second. AdamW's moments keep |m| <= sqrt(K v),
/// K = (1 - beta1)^2 / (1 - beta2) / (1 - beta1^2 / beta2) by Cauchy and Schwarz: 7.3 for betas of 0.9 and 0.999. The
/// limit allows for betas that have changed. Waits for `exec`.
template <class S>
Index first_unsound_moment(const ExecSpace& exec, Tensor<S, 1> exp_avg /* (M) */, Tensor<S, 1> exp_avg_sq /* (M) */);
inline constexpr double largest_moment_ratio = 1e4;

}  // namespace espalier
