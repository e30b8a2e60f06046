// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <espalier_revision.hpp>

#include "app/commands.hpp"
#include "app/cpu_features.hpp"
#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/types.hpp"
#include "io/checkpoint/hdf5_file.hpp"
#include "parallel/collectives/device_link.hpp"
#include "parallel/device/device.hpp"
#include "parallel/launch/runtime.hpp"

namespace espalier {

std::string program_text() {
  const std::string revision = ESPALIER_REVISION;
  return "Espalier " ESPALIER_VERSION + (revision.empty() ? "" : " (" + revision + ")");
}

std::string version_text() {
  std::string gpus;
  if (const std::string architectures = device_architectures(); !architectures.empty())
    gpus = fmt::format("GPUs      {}; {}\n", architectures, has_nccl ? "NCCL " + nccl_version() : "without NCCL");
  return fmt::format(
      "{}\nKokkos    {}.{}.{}, runs on {}\nMPI       {}\nGEMM      {}\nattention {}\nHDF5      {}\n{}built for {}",
      program_text(), KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100, ExecSpace::name(),
      mpi_library_version(), describe_matmul_libraries(), describe_attention_libraries(), hdf5_version(), gpus,
      built_for());
}

}  // namespace espalier
