// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

/// How the logits of a rank lie in memory.
struct LogitSizes {
  /// That exist at a time, about. On GPUs more: they are fast at large matmuls, and each piece reads and writes the
  /// whole gradient of the token embedding.
  Index max_at_once = Index{16} << 20;
  /// Logits of a row, and so rows of a rank's token embedding, are a multiple of this. A share of a vocabulary is of
  /// any length; tensor cores want whole lines of 128 bytes, of operands and of results, and matmuls that are as long.
  Index multiple = 1;
};
inline constexpr LogitSizes logits_on_host{};
inline constexpr LogitSizes logits_on_gpu{.max_at_once = Index{256} << 20, .multiple = 64};

/// Rows whose logits exist at a time, at least: so that the matmuls stay large.
inline constexpr Index min_logit_rows = 64;

/// Rows of a micro-batch of `tokens` whose logits exist at a time: `max_logits` of a rank, but min_logit_rows or
/// more. The same on all ranks of the tensor axis.
Index logit_rows(Index tokens, Index vocab_size, int tensor_size, Index max_logits);

}  // namespace espalier
