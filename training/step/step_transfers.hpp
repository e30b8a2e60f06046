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

/// The tokens of a batch, where they lie.
inline TokenBatch tokens_of(const Batch& batch, TokenWeight weight = 1) {
  return {batch.inputs.data(), batch.targets.data(), batch.first_sample,
          batch.positions.empty() ? nullptr : batch.positions.data(), weight};
}

/// As memory of one element, which is filled and copied without the host: a scalar of Kokkos' is not.
inline Tensor<double, 1> element(const Tensor<double, 0>& scalar) { return Tensor<double, 1>(scalar.data(), 1); }

/// What a step brings to its device and takes from it: tokens, their positions and a few numbers. By way of pinned
/// memory, from which a GPU copies behind the host's back; where kernels run on the host there is nothing to bring.
class StepTransfers {
 public:
  StepTransfers();

  /// The tokens of these micro-batches, each of which counts `weight`, for copies that `exec` is given before the next
  /// call. On hosts those of `microbatches` themselves.
  std::vector<TokenBatch> stage(const ExecSpace& exec, const std::vector<Batch>& microbatches, TokenWeight weight);

  /// The values of these arrays, one after another, once all is done that `exec` has been given; until the next call.
  std::span<const double> read(const ExecSpace& exec, std::initializer_list<Tensor<double, 1>> arrays);

 private:
  using Block = std::shared_ptr<const PinnedPool::Block>;
  unsigned char* room(Block& block, std::size_t bytes);

  PinnedPool pool_;  // of its own: what messages have used in a step is there for them in the next
  Block tokens_;
  bool tokens_are_read_ = false;  // copies of them may be on their way
  Block values_;
  std::vector<double> host_values_;  // in place of that block, where the device is the host
};

}  // namespace espalier
