// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/control_group.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <vector>

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

// Of our group ("0::/a/b") and of those that it lies in.
std::vector<std::string> lines_of_groups(const std::string& name) {
  std::vector<std::string> lines = {first_line("/sys/fs/cgroup/" + name)};
  std::string group = first_line("/proc/self/cgroup");
  for (group = group.starts_with("0::") ? group.substr(3) : ""; !group.empty();
       group = group.substr(0, group.rfind('/')))
    lines.push_back(first_line("/sys/fs/cgroup" + group + "/" + name));
  return lines;
}

// "max" and what is no number: no limit.
std::size_t limit_in(const std::string& line) {
  unsigned long long bytes = 0;
  return std::sscanf(line.c_str(), "%llu", &bytes) == 1 ? static_cast<std::size_t>(bytes)
                                                        : std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::size_t control_group_memory() {
  std::size_t limit = limit_in(first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  for (const std::string& line : lines_of_groups("memory.max"))
    limit = std::min(limit, limit_in(line));
  return limit;
}

double control_group_cores() {
  const std::string v1 = "/sys/fs/cgroup/cpu/cpu.cfs_";
  std::vector<std::string> lines = lines_of_groups("cpu.max");
  lines.push_back(first_line(v1 + "quota_us") + " " + first_line(v1 + "period_us"));  // "-1 100000": no limit
  double least = 0;
  for (const std::string& line : lines)
    if (const double cores = cores_in_cpu_max(line); cores > 0)
      least = least > 0 ? std::min(least, cores) : cores;
  return least;
}

double cores_in_cpu_max(const std::string& text) {
  double quota = 0;
  double period = 0;
  const bool is_limit = std::sscanf(text.c_str(), "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0;
  return is_limit ? quota / period : 0;
}

}  // namespace espalier
