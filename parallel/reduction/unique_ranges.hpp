// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

/// The parts of `ranges` of the flat arrays that `rank` writes and counts for all ranks with the same parameter, or
/// (`by_slice`) the same slice of it. Each element of the model is unique to one rank. Pure.
std::vector<IndexRange> unique_ranges(const std::vector<Parameter>& parameters, const std::vector<IndexRange>& ranges,
                                      const MeshLayout& layout, int rank, bool by_slice);

/// Elements in all of them.
Index total_size(const std::vector<IndexRange>& ranges);

}  // namespace espalier
