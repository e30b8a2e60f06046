// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/ops/attention.hpp"
#include "models/rank_memory.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

/// One micro-batch of a rank.
AttentionShape attention_shape(const RunConfig& config, const Layout& layout);

/// What of a config decides the memory of its ranks, where it computes in these types; how gradients travel the config
/// says. Library scratch, which only a measurement knows, is not in it.
MemoryOptions memory_options(const RunConfig& config, const Layout& layout, TrainingTypes types);

/// What a rank of each stage will allocate: rank_memory().
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout, const TrainingTypes& types);
/// The same in the precision of the config.
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout);

}  // namespace espalier
