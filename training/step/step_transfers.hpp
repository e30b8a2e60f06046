// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.hpp"
#include "io/tokens/token_loader.hpp"
#include "models/microbatch.hpp"
#include "parallel/collectives/pinned_pool.hpp"

namespace espalier {

/// The tokens of a batch, not copied.
inline TokenBatch tokens_of(const Batch& batch, TokenWeight weight = 1) {
  return {batch.inputs.data(), batch.targets.data(), batch.first_sample,
          batch.positions.empty() ? nullptr : batch.positions.data(), weight};
}

/// The scalar as an array of one element: Kokkos fills and copies arrays without the host, but not scalars.
inline Tensor<double, 1> element(const Tensor<double, 0>& scalar) { return Tensor<double, 1>(scalar.data(), 1); }

/// Copies tokens, their positions and a few numbers to and from the device in a step. Pinned memory makes the copies
/// asynchronous. Where kernels run on the host nothing is copied.
class StepTransfers {
 public:
  StepTransfers();

  /// The tokens of these micro-batches, each with `weight`, in pinned memory that is valid for copies enqueued on
  /// `exec` before the next call. On hosts the tokens of `microbatches` themselves.
  std::vector<TokenBatch> stage(const ExecSpace& exec, const std::vector<Batch>& microbatches, TokenWeight weight);

  /// The values of these arrays, one after another, when all work of `exec` so far is done. Valid until the next call.
  std::span<const double> read(const ExecSpace& exec, std::initializer_list<Tensor<double, 1>> arrays);

 private:
  using Block = std::shared_ptr<const PinnedPool::Block>;
  unsigned char* pinned(Block& block, std::size_t bytes);

  PinnedPool pool_;  // not that of messages, which find the blocks of the last step again
  Block tokens_;
  bool tokens_are_read_ = false;  // copies of them may be on their way
  Block values_;
  std::vector<double> host_values_;  // in place of that block, where the device is the host
};

}  // namespace espalier
