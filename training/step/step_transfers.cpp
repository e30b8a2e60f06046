// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_transfers.hpp"

#include <algorithm>

#include "core/kokkos_compat.hpp"

namespace espalier {

// What a step reads: pinned now, not in the first step, while its update is under way.
StepTransfers::StepTransfers() {
  constexpr std::size_t values_of_a_step = 2;
  if constexpr (!exec_is_host)
    pinned(values_, values_of_a_step * sizeof(double));
}

unsigned char* StepTransfers::pinned(Block& block, std::size_t bytes) {
  if (!block || block->size() < bytes) {
    block.reset();
    block = pool_.take(bytes);
  }
  return block->data();
}

std::vector<TokenBatch> StepTransfers::stage(const ExecSpace& exec, const std::vector<Batch>& microbatches,
                                             TokenWeight weight) {
  std::vector<TokenBatch> staged;
  staged.reserve(microbatches.size());
  if constexpr (exec_is_host) {
    for (const Batch& batch : microbatches)
      staged.push_back(tokens_of(batch, weight));
    return staged;
  }
  if (tokens_are_read_)
    compat::fence(exec, "espalier::StepTransfers: the tokens of before have been copied");
  std::size_t count = 0;
  for (const Batch& batch : microbatches)
    count += batch.inputs.size() + batch.targets.size() + batch.positions.size();
  static_assert(std::is_same_v<TokenId, int>, "positions lie between tokens");
  auto* next = reinterpret_cast<TokenId*>(pinned(tokens_, count * sizeof(TokenId)));
  for (const Batch& batch : microbatches) {
    TokenId* const targets = std::copy(batch.inputs.begin(), batch.inputs.end(), next);
    TokenId* const positions = std::copy(batch.targets.begin(), batch.targets.end(), targets);
    staged.push_back({next, targets, batch.first_sample, batch.positions.empty() ? nullptr : positions, weight});
    next = std::copy(batch.positions.begin(), batch.positions.end(), positions);
  }
  tokens_are_read_ = true;
  return staged;
}

// On hosts no memory of Kokkos: nothing that is counted.
std::span<const double> StepTransfers::read(const ExecSpace& exec, std::initializer_list<Tensor<double, 1>> arrays) {
  std::size_t count = 0;
  for (const Tensor<double, 1>& array : arrays)
    count += array.extent(0);
  if constexpr (exec_is_host)
    host_values_.resize(count);
  double* const host =
      exec_is_host ? host_values_.data() : reinterpret_cast<double*>(pinned(values_, count * sizeof(double)));
  double* next = host;
  for (const Tensor<double, 1>& array : arrays) {
    Kokkos::deep_copy(exec,
                      Kokkos::View<double*, Kokkos::LayoutRight, compat::PinnedHostSpace, Kokkos::MemoryUnmanaged>(
                          next, array.extent(0)),
                      array);
    next += array.extent(0);
  }
  compat::fence(exec, "espalier::StepTransfers: values are read on the host");
  tokens_are_read_ = false;
  return {host, count};
}

}  // namespace espalier
