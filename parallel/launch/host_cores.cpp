// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/host_cores.hpp"

#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>

#include "core/control_group.hpp"
#include "core/kokkos_compat.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/mesh/host_ranks.hpp"

namespace espalier {
namespace {

/// The cores that the host threads of this rank may run on. Asked of each thread: OpenMP may have bound them one by
/// one.
std::vector<std::int32_t> cores_of_threads() {
  using Host = Kokkos::DefaultHostExecutionSpace;
  const int num_threads = static_cast<int>(Host().concurrency());
  std::vector<std::vector<int>> by_thread(static_cast<std::size_t>(num_threads));
  std::vector<int>* const lists = by_thread.data();
  Kokkos::parallel_for("espalier::parallel::host_cores::cores_of_threads", Kokkos::RangePolicy<Host>(0, num_threads),
                       [lists](const int thread) { lists[thread] = cores_of_this_thread(); });
  compat::fence(Host(), "espalier::parallel::host_cores: the lists are complete");
  std::set<std::int32_t> cores;
  for (const std::vector<int>& list : by_thread)
    cores.insert(list.begin(), list.end());
  return {cores.begin(), cores.end()};
}

std::string counted_in_words(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

HostCores measure_host_cores(const Communicator& world) {
  const Communicator host = host_ranks(world);
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  HostCores result;
  result.host = name.data();
  result.ranks = host.size();
  result.limit = control_group_cores();
  result.threads = all_reduce(host, static_cast<std::int32_t>(Kokkos::DefaultHostExecutionSpace().concurrency()));
  std::vector<std::int32_t> own = cores_of_threads();
  const auto most = all_reduce(host, static_cast<std::int32_t>(own.size()), ReduceOp::max);
  own.resize(static_cast<std::size_t>(most), own.empty() ? 0 : own[0]);
  std::vector<std::int32_t> all(own.size() * static_cast<std::size_t>(host.size()));
  all_gather(host, std::span<std::int32_t>(all), std::span<const std::int32_t>(own));
  const std::set<std::int32_t> cores(all.begin(), all.end());
  result.cores.assign(cores.begin(), cores.end());
  return result;
}

int usable_cores(const HostCores& host) {
  const int num_cores = static_cast<int>(host.cores.size());
  return host.limit > 0 ? std::min(num_cores, static_cast<int>(std::ceil(host.limit))) : num_cores;
}

HostLoad most_crowded_host(const Communicator& world) {
  const HostCores host = measure_host_cores(world);
  const std::array<std::int32_t, 2> own = {host.threads, usable_cores(host)};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(world.size()));
  all_gather(world, std::span<std::int32_t>(all), std::span<const std::int32_t>(own));
  HostLoad most;
  for (std::size_t i = 0; i < all.size(); i += 2)
    if (most.cores == 0 || std::int64_t{all[i]} * most.cores > std::int64_t{most.threads} * all[i + 1])
      most = {all[i], all[i + 1]};
  return most;
}

std::string crowding_text(const HostCores& host) {
  const int num_cores = static_cast<int>(host.cores.size());
  const int allowed = usable_cores(host);
  const bool is_limited = allowed < num_cores;
  if (host.threads <= allowed)
    return "";
  std::string cause;
  for (const char* const name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (const char* const value = process_environment(name))
      cause += fmt::format("{}={} chooses these cores: unset it, or ", name, value);
  if (const char* const binding = process_environment("OMP_PROC_BIND"))
    if (strcasecmp(binding, "primary") == 0 || strcasecmp(binding, "master") == 0)
      cause += fmt::format("OMP_PROC_BIND={} binds all threads of a rank to one core: unset it, or ", binding);
  return fmt::format(
      "{} on {}{} of host {} ({}): they wait for each other; {}{}", counted_in_words(host.threads, "thread"),
      is_limited ? fmt::format("a CPU limit of {:.3g} cores (cpu.max of the control group), with ", host.limit) : "",
      counted_in_words(num_cores, "core"), host.host, counted_in_words(host.ranks, "rank"), cause,
      host.ranks > allowed
          ? fmt::format("start at most {} here", counted_in_words(allowed, "rank"))
          : fmt::format("set {}={}",
                        process_environment("KOKKOS_NUM_THREADS") ? "KOKKOS_NUM_THREADS" : "OMP_NUM_THREADS",
                        std::max(1, allowed / host.ranks)));
}

std::string crowding_text(const Communicator& world, const HostCores& cores) {
  for (const std::string& text : gather_texts(world, crowding_text(cores)))
    if (!text.empty())
      return text;
  return "";
}

}  // namespace espalier
