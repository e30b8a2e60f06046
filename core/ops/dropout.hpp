// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/random.hpp"
#include "core/tensor.hpp"
#include "core/vector_math.hpp"

namespace espalier {

/// Dropout (Srivastava et al., 2014): a share of the values becomes 0, the others are divided by 1 - rate. Which ones
/// is a pure function of a key and of where a value stands in the whole run: every layout drops the same values, and
/// no mask is kept.
class Dropout {
 public:
  Dropout() = default;  ///< drops nothing
  /// @param rate share of values that become 0
  /// @param key of a place in the model (RandomStream::key)
  /// @param first number of the first row among all rows of the run
  constexpr Dropout(double rate, std::uint64_t key, std::uint64_t first)
      : key_(key), first_(first), dropped_words_(static_cast<std::uint32_t>(rate * 0x1p32)), kept_(1 / (1 - rate)) {}

  KOKKOS_INLINE_FUNCTION bool is_on() const { return dropped_words_ > 0; }

  /// What the value in this row and column is multiplied by: 0 or 1 / (1 - rate).
  template <class S>
  KOKKOS_INLINE_FUNCTION S factor(Index row, Index column) const {
    const PhiloxBlock block =
        philox(key_, static_cast<std::uint64_t>(column) / 4, first_ + static_cast<std::uint64_t>(row));
    return block.word[column % 4] < dropped_words_ ? S(0) : static_cast<S>(kept_);
  }

  /// to[i] = factor(row, column + i) from[i] for i in [0, n). `to` may be `from`.
  template <class T, class Workers>
  KOKKOS_INLINE_FUNCTION void apply(const Workers& workers, T* to, const T* from, Index row, Index column,
                                    Index n) const;

 private:
  std::uint64_t key_ = 0;
  std::uint64_t first_ = 0;
  std::uint32_t dropped_words_ = 0;  ///< of the 2^32
  double kept_ = 1;                  ///< factor of the others
};

template <class T, class Workers>
KOKKOS_INLINE_FUNCTION void Dropout::apply(const Workers& workers, T* to, const T* from, Index row, Index column,
                                           Index n) const {
  using S = State<T>;
  if constexpr (exec_is_host) {
    // Four columns have one block of random words; loops over blocks vectorise.
    constexpr Index blocks = 32;
    std::uint32_t words[4][blocks];
    S factors[4 * blocks];
    const std::uint32_t dropped = dropped_words_;
    const S kept = static_cast<S>(kept_);
    const std::uint64_t number = first_ + static_cast<std::uint64_t>(row);
    for (Index done = 0; done < n;) {
      const Index lead = (column + done) % 4;  // columns of the first block that come before
      const Index count = smaller(4 * blocks - lead, n - done);
      const std::uint64_t first_block = static_cast<std::uint64_t>(column + done) / 4;
      row_for(workers, (lead + count + 3) / 4, [&](const Index b) {
        const PhiloxBlock block = philox(key_, first_block + static_cast<std::uint64_t>(b), number);
        for (int k = 0; k < 4; ++k)
          words[k][b] = block.word[k];
      });
      row_for(workers, lead + count, [&](const Index i) { factors[i] = words[i % 4][i / 4] < dropped ? S(0) : kept; });
      T* const out = to + done;
      const T* const in = from + done;
      row_for(workers, count,
              [&](const Index i) { out[i] = static_cast<T>(static_cast<S>(in[i]) * factors[lead + i]); });
      done += count;
    }
  } else {
    row_for(workers, n,
            [&](const Index i) { to[i] = static_cast<T>(static_cast<S>(from[i]) * factor<S>(row, column + i)); });
  }
}

/// y = x with values dropped: forward, and the gradient back. y may be x.
template <class T>
void apply_dropout(const ExecSpace& exec, Tensor<T, 2> y /* (N, C) */, Tensor<T, 2> x /* (N, C) */,
                   const Dropout& dropout);

/// y(n, :) = residual(n, :) + what dropout leaves of product(n, :) + bias; an empty bias is none. If T is Residual,
/// y may be `product`.
template <class T, class Residual = T>
void add_dropped(const ExecSpace& exec, Tensor<Residual, 2> y /* (N, C) */, Tensor<T, 2> product /* (N, C) */,
                 Tensor<T, 1> bias /* (C) */, Tensor<Residual, 2> residual /* (N, C) */, const Dropout& dropout);

}  // namespace espalier
