// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/memory_ledger.hpp"
#include "training/run_layout.hpp"

namespace espalier {

/// Bytes by category that a Trainer will allocate on a rank of `stage`, from the shapes alone; of the ranks of the
/// stage the one that has most. Library scratch, which only a measurement knows, is not in it.
template <class T>
MemoryByCategory predict_memory(const RunConfig& config, const RunLayout& layout, int stage);

/// The same for all stages, in the precision of the config.
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const RunLayout& layout);

/// @throws Error (ExitCode::memory) when a stage needs more than run.device_memory, or, where the config sets none,
/// than `available` bytes (0: not known): need, budget, the biggest categories, and the smallest layouts that would
/// fit.
void require_memory(const RunConfig& config, const RunLayout& layout, std::size_t available = 0);

/// What the machine has for each of its ranks, the least of all machines; 0 where unknown. Collective.
std::size_t memory_of_a_rank(const Communicator& world);

}  // namespace espalier
