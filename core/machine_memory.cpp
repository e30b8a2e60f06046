// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/machine_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/control_group.hpp"
#include "core/types.hpp"

namespace espalier {

std::size_t machine_memory_bytes() {
  if (!exec_is_host)
    return 0;
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages <= 0 ? 0
                    : std::min(static_cast<std::size_t>(pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
                               control_group_memory());
}

MemoryLimit process_memory_left() {
  MemoryLimit least{.bytes = std::numeric_limits<std::size_t>::max()};
  // Pages: all, resident, shared, text, libraries (0), data and stack.
  unsigned long long all = 0;
  unsigned long long data = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%llu %*u %*u %*u %*u %llu", &all, &data) != 2)
      all = data = 0;
    std::fclose(file);
  }
  const auto take = [&](auto resource, const char* option, unsigned long long used_pages) {
    rlimit limit = {};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
      return;
    const auto allowed = static_cast<std::size_t>(limit.rlim_cur);
    const auto used = static_cast<std::size_t>(used_pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t left = allowed > used ? allowed - used : 0;
    if (left < least.bytes)
      least =
          MemoryLimit{.bytes = left, .name = std::string("ulimit ") + option + " " + std::to_string(allowed / 1024)};
  };
  take(RLIMIT_AS, "-v", all);
  take(RLIMIT_DATA, "-d", data);
  return least;
}

}  // namespace espalier
