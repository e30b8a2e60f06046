// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_facts.hpp"

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "core/types.hpp"
#include "io/machine.hpp"
#include "io/tokens/token_frequencies.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/host_cores.hpp"
#include "training/config/data_files.hpp"
#include "training/loop/link_check.hpp"

namespace espalier {
namespace {

// The files were read a moment ago: what fails now fails in the training as well, which tells it.
void add_data_facts(const RunConfig& config, nlohmann::json& facts) {
  try {
    const TokenFrequencies frequencies = sample_frequencies(token_files_of(config.data.train));
    facts["train_tokens"] = frequencies.num_tokens;
    facts["unigram_loss"] = frequencies.unigram_loss;
  } catch (const Error&) {
  }
}

}  // namespace

nlohmann::json run_facts(const RunConfig& config, const ProcessMesh& mesh, const std::string& program,
                         double gemm_flops, Index first_step) {
  const Communicator& world = mesh.world();
  std::vector<std::string> hosts;
  std::vector<std::size_t> host_of_rank;
  for (const std::string& name : gather_texts(world, host_name())) {
    const auto found = std::find(hosts.begin(), hosts.end(), name);
    host_of_rank.push_back(static_cast<std::size_t>(found - hosts.begin()));
    if (found == hosts.end())
      hosts.push_back(name);
  }
  const HostLoad load = most_crowded_host(world);
  nlohmann::json facts = {
      {"program", program},
      {"cpu", cpu_model()},
      {"hosts", hosts},
      {"host_of_rank", host_of_rank},
      {"ranks", world.size()},
      {"threads", ExecSpace().concurrency()},
      {"host_threads", load.threads},
      {"host_cores", load.cores},
      {"gemm_library", to_string(matmul_library())},
      {"gemm_flops", gemm_flops},
      {"fast_16_bits", !exec_is_host || multiplies_16_bits<bfloat16>(default_matmul_library<bfloat16>())},
      {"first_step", first_step},
      {"links", check_links(mesh)}};
  if (world.rank() == 0)
    add_data_facts(config, facts);
  return facts;
}

}  // namespace espalier
