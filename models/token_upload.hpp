// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// Checks that the tokens lie in the tables of the model, before kernels read them. @throws Error (data)
inline void require_tokens(const TokenId* tokens, Index count, TokenId least, Index vocab_size) {
  const TokenId* const beyond = std::find_if(
      tokens, tokens + count, [=](TokenId token) { return token < least || static_cast<Index>(token) >= vocab_size; });
  if (beyond != tokens + count)
    throw Error(ExitCode::data, {.what = "a token is beyond the model's vocabulary",
                                 .where = fmt::format("token {} of {}", beyond - tokens, count),
                                 .got = fmt::format("id {}", *beyond),
                                 .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                                 .todo = "use tokens of the model's own tokenizer, or raise model.vocab_size"});
}

/// Positions of tokens in their documents: 0 at the begin of each row of T, then 0 or one more than before.
inline void require_positions(const int* positions, Index count, Index sequence_length) {
  for (Index n = 0; n < count; ++n)
    ESPALIER_ASSERT(positions[n] == 0 || (n % sequence_length > 0 && positions[n] == positions[n - 1] + 1),
                    fmt::format("position {} of token {} of a micro-batch does not count on", positions[n], n));
}

/// Copies numbers of the host to the front of a device array.
template <class T>
void upload(const ExecSpace& exec, const Kokkos::View<T*, Kokkos::LayoutRight, MemSpace>& to, const T* from,
            Index count) {
  const Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> source(from, count);
  Kokkos::deep_copy(exec, Kokkos::subview(to, std::pair<Index, Index>(0, count)), source);
}

}  // namespace espalier
