// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <source_location>

#include "core/error.hpp"

namespace espalier::impl {

/// @throws Error (ExitCode::memory) for memory that is not to be had, else (ExitCode::defect), with the call as
/// written.
[[noreturn]] inline void cuda_failed(cudaError_t code, const char* call, const std::source_location& at) {
  throw Error(code == cudaErrorMemoryAllocation ? ExitCode::memory : ExitCode::defect,
              {.what = "a CUDA call failed",
               .where = fmt::format("{} at {}:{}", call, at.file_name(), at.line()),
               .got = fmt::format("{}: {}", cudaGetErrorName(code), cudaGetErrorString(code)),
               .wanted = {},
               .todo = "an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer name it"});
}

}  // namespace espalier::impl

/// Every call of the CUDA runtime goes through this.
#define ESPALIER_CUDA(call)                                                                      \
  do {                                                                                           \
    const cudaError_t espalier_cuda_code = (call);                                               \
    if (espalier_cuda_code != cudaSuccess)                                                       \
      ::espalier::impl::cuda_failed(espalier_cuda_code, #call, std::source_location::current()); \
  } while (false)
