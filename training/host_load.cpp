// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/host_load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "core/types.hpp"
#include "io/machine.hpp"
#include "parallel/texts.hpp"

namespace espalier {
namespace {

// Of all threads of this process: OpenMP may have bound them one by one.
std::set<int> cores_of_this_process() {
  std::set<int> cores;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    cpu_set_t set;
    if (sched_getaffinity(std::stoi(task.path().filename().string()), sizeof(set), &set) != 0)
      continue;  // it has ended meanwhile
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        cores.insert(core);
  }
  return cores;
}

}  // namespace

HostLoad fullest_host(const Communicator& world) {
  struct Host {
    int threads = 0;
    std::set<int> cores;
  };
  std::map<std::string, Host> hosts;
  const int own_threads = exec_is_host ? static_cast<int>(ExecSpace().concurrency()) : 1;
  for (const std::string& text : gather_texts(
           world, fmt::format("{} {} {}", host_name(), own_threads, fmt::join(cores_of_this_process(), " ")))) {
    std::istringstream stream(text);
    std::string name;
    int threads = 0;
    stream >> name >> threads;
    Host& host = hosts[name];
    host.threads += threads;
    for (int core = 0; stream >> core;)
      host.cores.insert(core);
  }
  HostLoad fullest;
  for (const auto& [name, host] : hosts)
    if (const int cores = static_cast<int>(host.cores.size());
        cores > 0 && (fullest.cores == 0 || host.threads * fullest.cores > fullest.threads * cores))
      fullest = {host.threads, cores};
  return fullest;
}

}  // namespace espalier
