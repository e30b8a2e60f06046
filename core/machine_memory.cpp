// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/machine_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>

#include "core/types.hpp"

namespace espalier {
namespace {

// The first line of a small file of the system, without its end; "" if there is none.
std::string first_line(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr)
    return "";
  std::array<char, 4096> buffer{};
  std::string line = std::fgets(buffer.data(), static_cast<int>(buffer.size()), file) != nullptr ? buffer.data() : "";
  std::fclose(file);
  return line.substr(0, line.find('\n'));
}

// "max" and what is no number: no limit.
std::size_t limit_in(const std::string& path) {
  unsigned long long bytes = 0;
  return std::sscanf(first_line(path).c_str(), "%llu", &bytes) == 1 ? static_cast<std::size_t>(bytes)
                                                                    : std::numeric_limits<std::size_t>::max();
}

// The least of our group and of those that it lies in (cgroup v2, "0::/a/b"); or of the container (v1).
std::size_t control_group_limit() {
  std::size_t limit = limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::string group = first_line("/proc/self/cgroup");
  for (group = group.starts_with("0::") ? group.substr(3) : ""; !group.empty();
       group = group.substr(0, group.rfind('/')))
    limit = std::min(limit, limit_in("/sys/fs/cgroup" + group + "/memory.max"));
  return std::min(limit, limit_in("/sys/fs/cgroup/memory.max"));
}

}  // namespace

std::size_t machine_memory_bytes() {
  if (!exec_is_host)
    return 0;
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages <= 0 ? 0
                    : std::min(static_cast<std::size_t>(pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
                               control_group_limit());
}

}  // namespace espalier
