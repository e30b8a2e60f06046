// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace espalier {

/// What carries tensors between ranks. MPI always carries values in host memory.
enum class Transport {
  host_memory,    ///< MPI; tensors lie in host memory
  mpi_staged,     ///< MPI, from and to pinned host memory
  mpi_gpu_aware,  ///< MPI, which reads and writes device memory
  nccl            ///< NCCL, enqueued on the streams of the device
};
const char* to_string(Transport transport);

/// What the choice depends on.
struct TransportFacts {
  bool device_is_host = true;
  bool has_nccl = false;          ///< this program was built with it
  int ranks_per_device = 1;       ///< the most of any
  bool mpi_is_gpu_aware = false;  ///< as far as MPI says so
};

/// "auto, nccl, mpi-staged, mpi-gpu-aware": the words of choose_transport().
std::string transport_words(bool with_nccl = true);

/// The transport for ESPALIER_TRANSPORT, one of transport_words() or empty. auto: NCCL where it was
/// built in and no device is shared, else staged. Pure.
/// @throws Error (ExitCode::usage) for another word, and for one that the facts do not allow.
Transport choose_transport(std::string_view word, const TransportFacts& facts);

/// Whether this MPI library says that it is GPU-aware; false where it cannot be asked.
bool mpi_says_gpu_aware();

}  // namespace espalier
