// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/records/run_facts.hpp"
#include "parallel/mesh/process_mesh.hpp"

namespace espalier {

/// Finds slow links: sends a small message between the ranks of each group of each axis. Of groups of more than 8 ranks
/// only distances that are powers of two. Collective; takes milliseconds if no link is slow; the same on all ranks.
LinkTimes check_links(const ProcessMesh& mesh);

}  // namespace espalier
