// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/logit_rows.hpp"

#include <algorithm>

namespace espalier {

// By the largest share of the vocabulary, so that all tensor ranks take the same pieces.
int logit_chunks(Index tokens, Index vocab_size, int tensor_size, Index most) {
  constexpr Index least_rows = 64;
  const Index share = (vocab_size + tensor_size - 1) / tensor_size;
  const Index most_rows = std::max(least_rows, most / share);
  return static_cast<int>((tokens + most_rows - 1) / most_rows);
}

Index logit_rows(Index tokens, Index vocab_size, int tensor_size, Index most) {
  const Index chunks = logit_chunks(tokens, vocab_size, tensor_size, most);
  return (tokens + chunks - 1) / chunks;
}

}  // namespace espalier
