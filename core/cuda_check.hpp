// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/error.hpp"

namespace espalier {

/// A call of the CUDA runtime that failed becomes an Error that says which and on what.
/// @throws Error (ExitCode::memory) where memory ran out, else (ExitCode::defect).
inline void check_cuda(cudaError_t status, const std::string& call) {
  if (status == cudaSuccess)
    return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report it again
  throw Error(status == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::defect,
              {.what = "a CUDA call failed",
               .where = call,
               .got = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status),
               .wanted = "cudaSuccess",
               .todo = "compute-sanitizer names the kernel and the address, if memory was misused"});
}

}  // namespace espalier
