// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "parallel/mesh/reduction_groups.hpp"

namespace espalier {

/// A fault that `espalier verify` injects, to show that it finds it. The trainer knows nothing of it: it gets wrong
/// inputs (training/verify/fault_injection.hpp).
enum class InjectedFault {
  none,
  drop_all_reduce,     ///< one sum over the tensor axis is left out
  wrong_token_weight,  ///< one micro-batch counts twice
  swap_shards,         ///< two ranks of the tensor axis hold each other's rows
  no_tied_reduction,   ///< the token embeddings of the first and the last stage keep their own gradients
  no_tensor_sum,       ///< gradients of tp+dp are summed over the replicas only
  no_kv_sum,           ///< ranks that hold the same heads of keys and values keep their own gradients of them
  wrong_positions,     ///< the last rank of the tensor axis scales rotary positions in another way
  late_gather,         ///< ZeRO-3: a layer computes with what its buffer held before its weights came
  released_layer,      ///< ZeRO-3: a layer computes with what the layer before it has released
  no_copies_sum        ///< hybrid sharding: gradients are summed within a node only
};

inline constexpr std::array<const char*, 11> injected_fault_names{
    "none",      "drop_all_reduce", "wrong_token_weight", "swap_shards",    "no_tied_reduction", "no_tensor_sum",
    "no_kv_sum", "wrong_positions", "late_gather",        "released_layer", "no_copies_sum"};

inline const char* to_string(InjectedFault fault) { return injected_fault_names[static_cast<std::size_t>(fault)]; }

/// For a reducer that leaves out a sum: groups that the fault breaks are summed over the replicas alone.
inline ReductionCommunicators with_fault(InjectedFault fault, ReductionCommunicators communicators) {
  const ReductionCommunicators::Entry replicas = communicators[GroupKey{}];
  for (ReductionCommunicators::Entry& entry : communicators.entries) {
    const GroupKey key = entry.key;
    if ((fault == InjectedFault::no_tied_reduction && key.tied) ||
        (fault == InjectedFault::no_tensor_sum && key.axes.contains(Axis::tp)) ||
        (fault == InjectedFault::no_kv_sum && key.tp_run > 0))
      entry = replicas;
    entry.key = key;
    if (fault == InjectedFault::no_copies_sum)
      entry.second_level = nullptr;
  }
  return communicators;
}

}  // namespace espalier
