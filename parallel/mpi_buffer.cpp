// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_buffer.hpp"

#include <cstdlib>
#include <string_view>

namespace espalier {

bool mpi_reaches_device_memory() {
  if constexpr (exec_is_host) {
    return true;
  } else {
    const char* const setting = std::getenv("ESPALIER_GPU_AWARE_MPI");
    return setting != nullptr && std::string_view(setting) == "1";
  }
}

}  // namespace espalier
