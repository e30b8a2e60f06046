// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "parallel/mesh/process_mesh.hpp"

namespace espalier {

/// Sends a small message between the ranks of each group of each axis and says which took unusually long: 1.5 times the
/// median of their axis and 1 ms more. {"dp": {"typical_seconds": t, "slow": [{"from", "to", "seconds"}]}, ...} with
/// ranks of the world; axes of one rank are left out. Of groups of more than 8 ranks only distances that are powers of
/// two. Collective, and done in milliseconds where no link is slow; the same on all ranks.
nlohmann::json check_links(const ProcessMesh& mesh);

}  // namespace espalier
