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

/// What of a config decides the memory of its ranks. Library scratch, which only a measurement knows, is not in it.
template <class P>
MemoryOptions memory_options(const RunConfig& config, const Layout& layout);

/// What a rank of each stage will allocate in the precision of the config: rank_memory().
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout);

/// The same in another precision.
template <class P>
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout);

}  // namespace espalier
