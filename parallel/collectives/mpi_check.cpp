// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/mpi_check.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "core/error.hpp"

namespace espalier::impl {

void mpi_failed(int code, const char* call, const std::source_location& at) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS)
    length = 0;
  throw Error(ExitCode::communication,
              {.what = "an MPI call failed",
               .where = fmt::format("{} at {}:{}", call, at.file_name(), at.line()),
               .got = fmt::format("error {}: {}", code, std::string(text.data(), static_cast<std::size_t>(length))),
               .wanted = {},
               .todo = "look for the first rank that failed: the others only see that it is gone"});
}

}  // namespace espalier::impl
