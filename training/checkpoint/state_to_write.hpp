// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/step/flat_blocks.hpp"

namespace espalier {

/// One array of the training state, and the runs of it that this rank writes.
template <class S>
struct CountedArray {
  FlatArray<S> array;
  std::vector<IndexRange> counted;
};

/// What this rank writes of the training state, and the host memory it lies in.
template <class S>
struct StateToWrite {
  std::vector<TensorBlock> blocks;
  std::vector<std::string> tensors;      ///< that this rank knows of
  std::vector<HostTensor<S, 1>> memory;  ///< of view_state()
};

/// The arrays themselves, where the host can read them; copies of whole arrays elsewhere.
template <class S>
StateToWrite<S> view_state(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                           const std::vector<CountedArray<S>>& arrays);

/// A copy of what this rank writes, and nothing more: training may go on while it is written. Its memory is entered in
/// the ledger and made once, so that a save costs a copy and no page faults.
template <class S>
class StateCopy {
 public:
  /// @throws Error (ExitCode::memory) when the budget of the ledger would be exceeded.
  StateCopy(const std::vector<Parameter>& parameters, const std::vector<CountedArray<S>>& arrays);

  /// Takes the arrays' values. The blocks stay where they are.
  void take(const ExecSpace& exec);
  const StateToWrite<S>& state() const { return state_; }

 private:
  using Pinned = Kokkos::View<S*, Kokkos::LayoutRight, compat::PinnedHostSpace>;

  std::vector<CountedArray<S>> arrays_;
  std::vector<Pinned> copies_;  // by array; a device fills them at full speed
  StateToWrite<S> state_;
};

}  // namespace espalier
