// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/memory_ledger.hpp"
#include "models/cost.hpp"
#include "models/layout.hpp"
#include "planning/implementation.hpp"
#include "planning/layer_memory.hpp"
#include "planning/state_bytes.hpp"

namespace espalier {

/// Bytes of a rank of each stage, by category.
std::vector<MemoryByCategory> layout_memory(const ModelConfig& model, const Layout& layout,
                                            const Implementation& implementation, Index sequence_length);

/// The stage that needs most, the first of equals. @pre there is one.
int peak_stage(const std::vector<MemoryByCategory>& stages);

/// What it needs.
std::size_t peak_bytes(const std::vector<MemoryByCategory>& stages);

}  // namespace espalier
