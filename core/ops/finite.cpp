// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/finite.hpp"

#include <algorithm>

#include "core/kokkos_compat.hpp"

namespace espalier {

template <class S>
Index first_not_finite(const ExecSpace& exec, Tensor<S, 1> values) {
  const auto size = static_cast<Index>(values.extent(0));
  Index behind = 0;  // how many values there are from the first such one on
  Kokkos::parallel_reduce(
      "espalier::core::first_not_finite", RangePolicy(exec, 0, size),
      KOKKOS_LAMBDA(const Index i, Index& most) {
        if (!compat::isfinite(values(i)) && size - i > most)
          most = size - i;
      },
      Kokkos::Max<Index>(behind));           // a number of the host: complete when this returns
  return size - std::max<Index>(behind, 0);  // of no value at all: the least number
}

#define ESPALIER_INSTANTIATE(S) template Index first_not_finite<S>(const ExecSpace&, Tensor<S, 1>);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
