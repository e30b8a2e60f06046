// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// OpenBLAS takes its buffers while it is loaded, before main, and tries for ever where the limit of addresses
// (ulimit -v) allows none. So this runs before any library is initialised, and may call nothing that needs one.
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>

#ifdef __ELF__
namespace {

constexpr rlim_t min_bytes = rlim_t{512} << 20;  // 420 MB were measured for --version, libraries included

bool is_first_rank(char** environment) {
  for (char** variable = environment; *variable != nullptr; ++variable)
    for (const char* name : {"PMI_RANK=", "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID="})
      if (std::strncmp(*variable, name, std::strlen(name)) == 0)
        return std::strcmp(*variable + std::strlen(name), "0") == 0;
  return true;
}

void require_address_space(int, char**, char** environment) {
  constexpr int memory = 7;  // ExitCode::memory
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit = {};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= min_bytes)
      continue;
    const char* const text =
        resource == RLIMIT_AS
            ? "espalier: error: the memory limit of this process is too low\n  got:    ulimit -v below 524288 (KiB)\n"
              "  wanted: at least 524288, and more for a model\n  do:     raise it: ulimit -v unlimited\n"
            : "espalier: error: the memory limit of this process is too low\n  got:    ulimit -d below 524288 (KiB)\n"
              "  wanted: at least 524288, and more for a model\n  do:     raise it: ulimit -d unlimited\n";
    if (is_first_rank(environment) && write(STDERR_FILENO, text, std::strlen(text)) < 0)
      _exit(memory);
    _exit(memory);
  }
}

__attribute__((section(".preinit_array"), used)) void (*const require_first)(int, char**,
                                                                             char**) = require_address_space;

}  // namespace
#endif
