// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/memory_ledger.hpp"
#include "core/ops/attention.hpp"
#include "planning/layout_memory.hpp"  // peak_stage() of what this predicts
#include "training/run_layout.hpp"

namespace espalier {

/// One micro-batch of a rank.
AttentionShape attention_shape(const RunConfig& config, const Layout& layout);

/// What a rank of `stage` receives the sums of tensor ranks in: a Trainer allocates it before its first step.
template <class T>
Index tensor_scratch(const RunConfig& config, const Layout& layout, int stage);

/// Bytes by category that a Trainer will allocate on a rank of `stage`, from the shapes alone; of the ranks of the
/// stage the one that has most. Library scratch, which only a measurement knows, is not in it.
template <class P>
MemoryByCategory predict_memory(const RunConfig& config, const Layout& layout, int stage);

/// The same for all stages, in the precision of the config.
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout);

}  // namespace espalier
