// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What a start ran on, for run.json: `diagnose` compares it between runs. {"program", "cpu", "hosts": [names],
/// "host_of_rank": [index], "ranks", "threads" (of a rank), "host_threads" and
/// "host_cores" (parallel/launch/host_cores.hpp), "gemm_library", "gemm_flops" (per second, all ranks
/// together), "fast_16_bits" (whether it multiplies them on units of their own), "first_step" (that this start took),
/// "links" (training/loop/link_check.hpp), "train_tokens", "unigram_loss" (io/tokens/token_frequencies.hpp)}. Whole on
/// rank 0, which writes it. Collective.
nlohmann::json run_facts(const RunConfig& config, const ProcessMesh& mesh, const std::string& program,
                         double gemm_flops, Index first_step);

}  // namespace espalier
