// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "models/cost.hpp"
#include "models/presets.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/run_config.hpp"

int main(int argc, char** argv) {
  return espalier::run_job(argc, argv, [](espalier::Runtime& runtime) {  // MPI and Kokkos, of the same builds
    const espalier::ModelConfig shape = espalier::model_preset("gpt2-124m");
    std::printf("gpt2-124m has %lld parameters, this job %d rank\n",
                static_cast<long long>(espalier::num_parameters(shape)), runtime.size());
    const espalier::RunConfig config =
        espalier::parse_run_config("run.steps = 1\ndata.train = [\"train.bin\"]\n", "consumer", {}, 1);
    return config.total_steps() == 1 && espalier::num_parameters(shape) == 124439808 ? 0 : 1;
  });
}
