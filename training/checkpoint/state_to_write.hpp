// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/step/flat_blocks.hpp"

namespace espalier {

/// One array of the training state, and its unique ranges, which this rank writes.
struct UniqueArray {
  FlatArray array;
  std::vector<IndexRange> unique;
};

/// What this rank writes of the training state, and the host memory it lies in.
struct StateToWrite {
  std::vector<TensorBlock> blocks;
  std::vector<std::string> tensors;                  ///< that this rank knows of
  std::vector<HostTensor<unsigned char, 1>> memory;  ///< of view_state()
};

/// The arrays themselves, where the host can read them; copies of whole arrays elsewhere.
StateToWrite view_state(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                        const std::vector<UniqueArray>& arrays);

/// A copy of what this rank writes, so that training can continue meanwhile. Its memory is entered in the ledger and
/// allocated once, so that a save costs a copy and no page faults.
class StateCopy {
 public:
  /// @throws Error (ExitCode::memory) when the budget of the ledger would be exceeded.
  StateCopy(const std::vector<Parameter>& parameters, const std::vector<UniqueArray>& arrays);

  /// Copies the values of the arrays. The blocks keep their addresses.
  void take(const ExecSpace& exec);
  const StateToWrite& state() const { return state_; }

 private:
  using Pinned = Kokkos::View<unsigned char*, Kokkos::LayoutRight, compat::PinnedHostSpace>;

  std::vector<UniqueArray> arrays_;
  std::vector<Pinned> copies_;  // by array; a device fills them at full speed
  StateToWrite state_;
};

}  // namespace espalier
