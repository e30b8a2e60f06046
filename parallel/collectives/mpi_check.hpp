// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <source_location>

namespace espalier::impl {

/// @throws Error (ExitCode::communication) with the call as written and MPI's own text for `code`.
[[noreturn]] void mpi_failed(int code, const char* call, const std::source_location& at);

}  // namespace espalier::impl

/// Every MPI call that can fail goes through this. Our communicators carry MPI_ERRORS_RETURN; under MPI's default
/// the process would be gone before the check.
#define ESPALIER_MPI(call)                                                                     \
  do {                                                                                         \
    const int espalier_mpi_code = (call);                                                      \
    if (espalier_mpi_code != MPI_SUCCESS)                                                      \
      ::espalier::impl::mpi_failed(espalier_mpi_code, #call, std::source_location::current()); \
  } while (false)
