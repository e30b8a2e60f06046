// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What a launch ran on, for run.json: `diagnose` compares it between runs. {"program", "cpu", "hosts": [names],
/// "host_of_rank": [index], "ranks", "threads" (of a rank), "host_threads" and
/// "host_cores" (parallel/launch/host_cores.hpp), "gemm_library", "gemm_flops" (per second, all ranks
/// together), "fast_16_bits" (whether it multiplies them on units of their own), "first_step" (that this launch took),
/// "links" (training/loop/run_facts.hpp), "train_tokens", "unigram_loss" (io/tokens/token_statistics.hpp)}. Whole on
/// rank 0, which writes it. Collective.
nlohmann::json run_facts(const RunConfig& config, const ProcessMesh& mesh, const std::string& program,
                         double gemm_flops, Index first_step);

/// Finds slow links: sends a small message between the ranks of each group of each axis. The typical
/// time is the median of the axis (parallel/observe/slow_link.hpp). {"dp": {"typical_seconds": t, "slow": [{"from",
/// "to", "seconds"}]}, ...} with ranks of the world; axes of one rank are left out. Of groups of more than 8 ranks only
/// distances that are powers of two. Collective; takes milliseconds if no link is slow; the same on all ranks.
nlohmann::json check_links(const ProcessMesh& mesh);

}  // namespace espalier
