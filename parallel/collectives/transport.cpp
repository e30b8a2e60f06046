// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/transport.hpp"

#include <fmt/format.h>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>  // Open MPI's extensions; MPICH has them in mpi.h
#endif

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace espalier {
namespace {

constexpr std::array choices{Transport::nccl, Transport::mpi_staged, Transport::mpi_gpu_aware};  // on a GPU

[[noreturn]] void refuse_transport(std::string_view word, std::string what, std::string wanted, std::string todo) {
  throw Error(ExitCode::usage, {.what = std::move(what),
                                .where = "--transport, or ESPALIER_TRANSPORT",
                                .got = fmt::format("\"{}\"", word),
                                .wanted = std::move(wanted),
                                .todo = std::move(todo)});
}

}  // namespace

const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::host_memory: return "mpi";
    case Transport::mpi_staged: return "mpi-staged";
    case Transport::mpi_gpu_aware: return "mpi-gpu-aware";
    case Transport::nccl: return "nccl";
  }
  return "unknown";
}

std::string transport_words(bool with_nccl) {
  std::string words = "auto";
  for (const Transport transport : choices)
    if (with_nccl || transport != Transport::nccl)
      words += fmt::format(", {}", to_string(transport));
  return words;
}

Transport choose_transport(std::string_view word, const TransportFacts& facts) {
  const bool automatic = word.empty() || word == "auto";
  const auto chosen =
      std::ranges::find(choices, word, [](Transport each) -> std::string_view { return to_string(each); });
  if (!automatic && chosen == choices.end())
    refuse_transport(word, "unknown transport", "one of " + transport_words(), "leave it unset for auto");
  if (facts.device_is_host) {
    if (!automatic)
      refuse_transport(word, "this build of Espalier computes in host memory, so there is no choice of transport",
                       "auto, or nothing", "leave it unset");
    return Transport::host_memory;
  }
  const bool is_possible = facts.has_nccl && facts.ranks_per_device == 1;
  if (automatic)
    return is_possible ? Transport::nccl : Transport::mpi_staged;
  if (*chosen == Transport::mpi_gpu_aware && !facts.mpi_is_gpu_aware)
    refuse_transport(word, "this MPI library says that it cannot be handed device memory", "an MPI built with CUDA",
                     "use mpi-staged or nccl; some libraries need a setting first (MPICH: MPIR_CVAR_ENABLE_GPU=1, "
                     "Cray: MPICH_GPU_SUPPORT_ENABLED=1)");
  if (*chosen != Transport::nccl)
    return *chosen;
  if (!facts.has_nccl)
    refuse_transport(word, "this Espalier was built without NCCL", "one of " + transport_words(false),
                     "build it where nccl.h and libnccl are found, see docs/gpus.md");
  if (!is_possible)
    refuse_transport(word, fmt::format("NCCL takes one rank per GPU, and {} ranks share one", facts.ranks_per_device),
                     "one of " + transport_words(false), "leave it unset, or start one rank per GPU");
  return Transport::nccl;
}

bool mpi_says_gpu_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

}  // namespace espalier
