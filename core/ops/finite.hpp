// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

namespace espalier {

/// The place of the first value that is infinite or no number; the size of the array where all are finite. Waits for
/// `exec`.
template <class S>
Index first_not_finite(const ExecSpace& exec, Tensor<S, 1> values);

}  // namespace espalier
