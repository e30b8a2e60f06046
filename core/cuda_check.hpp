// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>

#include "core/error.hpp"

namespace espalier {

/// A call of the CUDA runtime that failed becomes an Error that says which and on what.
/// @throws Error (ExitCode::memory) where memory ran out, else (ExitCode::defect).
inline void check_cuda(cudaError_t status, const std::string& call) {
  if (status == cudaSuccess)
    return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report it again
  throw Error(
      status == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::defect,
      {.what = "a CUDA call failed",
       .where = call,
       .got = fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status)),
       .wanted = "cudaSuccess",
       .todo =
           "an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer name it and the address"});
}

}  // namespace espalier

/// check_cuda of a call as it is written here; costs nothing where it succeeds.
#define ESPALIER_CUDA(call)                                                                                \
  do {                                                                                                     \
    const cudaError_t espalier_cuda_status = (call);                                                       \
    if (espalier_cuda_status != cudaSuccess)                                                               \
      ::espalier::check_cuda(espalier_cuda_status, fmt::format("{} at {}:{}", #call, __FILE__, __LINE__)); \
  } while (false)
