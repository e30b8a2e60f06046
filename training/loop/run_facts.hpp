// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "io/records/run_facts.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What a launch runs on: `diagnose` compares it between runs. Whole on rank 0, which writes it. Collective.
RunFacts gather_run_facts(const RunConfig& config, const ProcessMesh& mesh, const std::string& program,
                          double gemm_flops, Index first_step);

}  // namespace espalier
