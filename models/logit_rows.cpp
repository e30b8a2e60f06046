// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/logit_rows.hpp"

#include <algorithm>

namespace espalier {

// By the largest share of the vocabulary, so that all tensor ranks take the same pieces.
namespace {

Index divide_up(Index number, Index divisor) { return (number + divisor - 1) / divisor; }

}  // namespace

// Chunks of one size. Where they are long they are whole tiles of a GPU's matmuls, for an eighth more memory at most.
Index logit_rows(Index tokens, Index vocab_size, int tensor_size, Index max_logits) {
  constexpr Index tile = 128;
  const Index max_rows = std::max(min_logit_rows, max_logits / divide_up(vocab_size, tensor_size));
  const Index rows = divide_up(tokens, divide_up(tokens, max_rows));
  return rows < 8 * tile ? rows : std::min(tokens, tile * divide_up(rows, tile));
}

}  // namespace espalier
