// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/types.hpp"

namespace espalier {

/// sum_k(c) += sum over r < rows of term(r, c)[k], for k < Count: the gradients of biases and norms. A strip of columns
/// belongs to one thread, which walks the rows in order, so the sum does not depend on the number of threads.
/// term(row, col, S out[Count]) fills the Count terms; store(col, S sum[Count]) adds them to the result.
template <int Count, class S, class Term, class Store>
void column_sums(const ExecSpace& exec, const char* label, Index rows, Index cols, const Term& term,
                 const Store& store) {
  constexpr Index strip = exec_is_host ? 32 : 1;
  const Index strips = (cols + strip - 1) / strip;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<ExecSpace>(exec, 0, strips), KOKKOS_LAMBDA(const Index s) {
        const Index first = s * strip;
        const Index width = first + strip <= cols ? strip : cols - first;
        S sum[Count][strip] = {};
        const auto add_row = [&](const Index r, const Index columns) {
          for (Index c = 0; c < columns; ++c) {
            S terms[Count];
            term(r, first + c, terms);
            for (int k = 0; k < Count; ++k)
              sum[k][c] += terms[k];
          }
        };
        for (Index r = 0; r < rows; ++r) {
          if (width == strip)
            add_row(r, strip);  // a trip count known to the compiler
          else
            add_row(r, width);
        }
        for (Index c = 0; c < width; ++c) {
          S total[Count];
          for (int k = 0; k < Count; ++k)
            total[k] = sum[k][c];
          store(first + c, total);
        }
      });
}

}  // namespace espalier
