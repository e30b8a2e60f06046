// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_facts.hpp"

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "core/types.hpp"
#include "io/machine.hpp"
#include "io/tokens/token_statistics.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/host_cores.hpp"
#include "training/config/data_files.hpp"
#include "training/loop/link_check.hpp"

namespace espalier {
namespace {

// The files were read a moment ago: what fails now fails in the training as well, which reports it.
void add_data_facts(const RunConfig& config, RunFacts& facts) {
  try {
    const TokenFrequencies frequencies = sample_frequencies(token_files_of(config.data.train));
    facts.train_tokens = frequencies.num_tokens;
    facts.unigram_loss = frequencies.unigram_loss;
  } catch (const Error&) {
  }
}

void add_hosts(const Communicator& world, RunFacts& facts) {
  for (const std::string& name : gather_texts(world, host_name())) {
    const auto found = std::find(facts.hosts.begin(), facts.hosts.end(), name);
    facts.host_of_rank.push_back(static_cast<std::size_t>(found - facts.hosts.begin()));
    if (found == facts.hosts.end())
      facts.hosts.push_back(name);
  }
}

}  // namespace

RunFacts gather_run_facts(const RunConfig& config, const ProcessMesh& mesh, const std::string& program,
                          double gemm_flops, Index first_step) {
  const Communicator& world = mesh.world();
  const HostLoad load = most_crowded_host(world);
  RunFacts facts{
      .program = program,
      .cpu = cpu_model(),
      .ranks = world.size(),
      .threads = ExecSpace().concurrency(),
      .host_threads = load.threads,
      .host_cores = load.cores,
      .gemm_library = to_string(matmul_library()),
      .gemm_flops = gemm_flops,
      .fast_16_bits = !exec_is_host || multiplies_16_bits(ScalarType::bf16, default_matmul_library(ScalarType::bf16)),
      .first_step = first_step,
      .links = check_links(mesh)};
  add_hosts(world, facts);
  if (world.rank() == 0)
    add_data_facts(config, facts);
  return facts;
}

}  // namespace espalier
