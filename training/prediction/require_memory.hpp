// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "parallel/collectives/communicator.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

/// @throws Error (ExitCode::memory) when a stage needs more than run.device_memory, or, where the config sets none,
/// than `available` bytes (0: not known): need, budget, the biggest categories, the settings that lower the need, the
/// least that these ranks can do with, and the smallest layouts that would fit.
void require_memory(const RunConfig& config, const Layout& layout, std::size_t available = 0);

/// What the machine has for each of its ranks, the least of all machines; on GPUs what is free for each of those that
/// share one; 0 where unknown. Collective.
std::size_t memory_of_a_rank(const Communicator& world);

/// A config and what its rank with the highest peak memory is predicted to need.
struct MemoryNeed {
  RunConfig config;
  std::size_t bytes = 0;
};

/// The same model, data and global batch on as many ranks, with what needs least: mesh, schedule, sequence parallelism,
/// recomputation, micro-batch, types of compute (fp32, bf16; fp16 where the config has it), residual and reduction, and
/// checkpoints that are not written beside the steps.
MemoryNeed least_memory(const RunConfig& config, int ranks);

}  // namespace espalier
