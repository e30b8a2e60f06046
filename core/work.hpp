// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/ops/attention_shape.hpp"

// What an operation computes and sends on a rank: the `work` functions of the layers list it. FLOPs, traffic and
// estimated times come from these lists.

namespace espalier {

/// A matmul (m, k) x (k, n), `count` times.
struct MatmulWork {
  Index m = 0;
  Index n = 0;
  Index k = 0;
  Index count = 1;
  double flops() const;  ///< 2 m n k each
  auto operator<=>(const MatmulWork&) const = default;
};

/// Attention over a micro-batch in one direction.
struct AttentionWork {
  AttentionShape shape{};
  bool backward = false;
  Index count = 1;
  /// FLOPs of the causal half of two matmuls with the scores; in backward of four.
  double flops() const;
};

enum class Collective { all_reduce, all_gather, reduce_scatter };

/// A collective over the tensor axis.
struct CollectiveWork {
  Collective kind = Collective::all_reduce;
  Index elements = 0;  ///< of the reduced or gathered array as a whole
  Index element_bytes = 0;
  Index count = 1;
  auto operator<=>(const CollectiveWork&) const = default;
};

struct Work {
  std::vector<MatmulWork> matmuls;
  std::vector<AttentionWork> attention;
  std::vector<CollectiveWork> collectives;
  double elementwise_bytes = 0;  ///< that the other kernels read and write
  double flops() const;          ///< of matmuls and attention
  Work& operator+=(const Work& more);
};
Work operator*(Index times, Work work);

/// For tests: where it is given, matmuls, attention and collectives of this process are added to it as they run.
inline Work* counted_work = nullptr;
inline void count_work(const MatmulWork& matmul) {
  if (counted_work != nullptr)
    counted_work->matmuls.push_back(matmul);
}
inline void count_work(const AttentionWork& attention) {
  if (counted_work != nullptr)
    counted_work->attention.push_back(attention);
}
inline void count_work(const CollectiveWork& collective) {
  if (counted_work != nullptr)
    counted_work->collectives.push_back(collective);
}

}  // namespace espalier
