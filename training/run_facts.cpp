// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/run_facts.hpp"

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "io/machine.hpp"
#include "parallel/texts.hpp"
#include "training/link_check.hpp"

namespace espalier {

nlohmann::json run_facts(const ProcessMesh& mesh, const std::string& program, double gemm_flops, Index first_step) {
  const Communicator& world = mesh.world();
  std::vector<std::string> hosts;
  std::vector<std::size_t> host_of_rank;
  for (const std::string& name : gather_texts(world, host_name())) {
    const auto found = std::find(hosts.begin(), hosts.end(), name);
    host_of_rank.push_back(static_cast<std::size_t>(found - hosts.begin()));
    if (found == hosts.end())
      hosts.push_back(name);
  }
  return {{"program", program},
          {"cpu", cpu_model()},
          {"hosts", hosts},
          {"host_of_rank", host_of_rank},
          {"ranks", world.size()},
          {"threads", ExecSpace().concurrency()},
          {"gemm_library", to_string(matmul_library())},
          {"gemm_flops", gemm_flops},
          {"first_step", first_step},
          {"links", check_links(mesh)}};
}

}  // namespace espalier
