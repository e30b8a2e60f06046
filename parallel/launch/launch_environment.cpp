// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/launch_environment.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <strings.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/control_group.hpp"
#include "core/error.hpp"

#ifdef KOKKOS_ENABLE_OPENMP
#include <omp.h>
#endif

namespace espalier {
namespace {

constexpr const char* reexec_variable = "ESPALIER_REEXEC";
constexpr std::string_view started_again = "started again: ";  // what a user sets it to is another word

// Each launcher's name for (ranks on this host, our rank among them).
constexpr std::array<std::pair<const char*, const char*>, 5> local_variables{{
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},                        // MPICH, Intel MPI: hydra
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},  // Open MPI
    {"PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID"},                      // Cray
    {"MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"},    // MVAPICH
    {"SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"},                // srun
}};

// Each launcher's name for (ranks, our rank among them), that of the innermost first: mpiexec may run below srun. Of
// srun only a step is asked: in a batch script SLURM_NTASKS says what was allocated, not what was started.
struct WorldVariables {
  const char* size;
  const char* rank;
  const char* launcher;
};
constexpr std::array<WorldVariables, 4> world_variables{{
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec"},
    {"PMI_SIZE", "PMI_RANK", "an mpiexec of MPICH's kind"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH's mpiexec"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"},
}};

bool is_set(const Environment& environment, const char* name) { return environment(name) != nullptr; }

bool is_zero(const char* value) { return value != nullptr && std::string_view(value) == "0"; }

/// Leading number of "4", "4,2", "4(x2),3"; `otherwise` if there is none.
int leading_number(const char* text, int otherwise) {
  if (text == nullptr)
    return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return end != text && value >= 0 && value < 1 << 20 ? static_cast<int>(value) : otherwise;
}

/// The value of a line of /proc/PID/status, "" if there is none.
std::string status_line(const std::string& pid, const std::string& key) {
  std::FILE* const file = std::fopen(("/proc/" + pid + "/status").c_str(), "r");
  if (file == nullptr)
    return "";
  std::array<char, 512> buffer{};
  std::string value;
  while (value.empty() && std::fgets(buffer.data(), static_cast<int>(buffer.size()), file) != nullptr) {
    const std::string_view line(buffer.data());
    if (line.starts_with(key + ":\t"))
      value = line.substr(key.size() + 2, line.find('\n') - key.size() - 2);
  }
  std::fclose(file);
  return value;
}

/// Has the launcher given this rank other cores than it has itself? The launcher is the nearest ancestor of a known
/// name; a shell may stand between.
bool launcher_has_other_cores(const std::vector<int>& cores) {
  const std::string own = core_list_text(cores);
  std::string pid = status_line("self", "PPid");
  for (int depth = 0; depth < 8 && !pid.empty() && pid != "0"; ++depth) {
    const std::string name = status_line(pid, "Name");
    for (const char* launcher : {"hydra_pmi_proxy", "pmi_proxy", "mpiexec", "mpirun", "orted", "prted", "orterun",
                                 "prterun", "palsd", "slurmstepd"})
      if (name.starts_with(launcher))
        return status_line(pid, "Cpus_allowed_list") != own;
    pid = status_line(pid, "PPid");
  }
  return false;
}

// Does the user name the cores of OpenMP's threads, rather than let OpenMP choose among those of the process?
bool names_cores(const Environment& environment) {
  const char* const places = environment("OMP_PLACES");
  const bool listed = places != nullptr && std::isalpha(static_cast<unsigned char>(*places)) == 0;
  return listed || is_set(environment, "GOMP_CPU_AFFINITY");
}

void bind_this_process(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    CPU_SET(static_cast<std::size_t>(core), &set);
  sched_setaffinity(0, sizeof(set), &set);  // a refusal leaves us unbound, which is only slower
}

// The program's own path rather than /proc/self/exe, after which ps and top would call it "exe".
void start_again(char** argv) {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size > 0)
    execv(path.data(), argv);
  execv("/proc/self/exe", argv);  // the file has been replaced or moved since
}

}  // namespace

const char* process_environment(const char* name) { return std::getenv(name); }

std::optional<int> ranks_in_environment(const char* variable, const std::string& name) {
  const char* const setting = process_environment(variable);
  if (setting == nullptr)
    return std::nullopt;
  const std::string_view text = setting;
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < 1)
    throw Error(ExitCode::usage, {.what = name + " is not a number of ranks",
                                  .got = fmt::format("\"{}\"", text),
                                  .wanted = "1 or more",
                                  .todo = fmt::format("correct {}, or leave it unset", variable)});
  return number;
}

LaunchedRank launched_rank(const Environment& environment) {
  for (const auto& [size, rank, launcher] : world_variables)
    if (is_set(environment, size) && is_set(environment, rank))
      return {.rank = leading_number(environment(rank), 0),
              .size = std::max(1, leading_number(environment(size), 1)),
              .launcher = fmt::format("{} ({}={})", launcher, size, environment(size))};
  return {};
}

void require_own_launcher(const LaunchedRank& launched, int world_size, const std::string& mpi_library) {
  if (launched.size == 1 || world_size > 1)
    return;
  throw Error(ExitCode::usage,
              {.what = "the ranks do not find each other: they were started by the launcher of another MPI",
               .where = fmt::format("process {} of {} by {}", launched.rank, launched.size, launched.launcher),
               .got = fmt::format("each process is alone in its MPI world, with {}", mpi_library),
               .wanted = "the launcher of the MPI that espalier is built with",
               .todo = "name it: mpiexec.mpich or mpiexec.openmpi; below srun choose its --mpi=... (srun --mpi=list)"});
}

std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set))
      cores.push_back(core);
  return cores;
}

std::vector<int> cores_of_this_process() {
  std::vector<int> cores = cores_of_this_thread();
#ifdef KOKKOS_ENABLE_OPENMP
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    cores.insert(cores.end(), ids.begin(), ids.end());
  }
#endif
  std::ranges::sort(cores);
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::string core_list_text(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1)
      ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i)
      text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

bool started_by_srun(const Environment& environment) {
  const auto launcher = std::find_if(local_variables.begin(), local_variables.end(), [&](const auto& names) {
    return is_set(environment, names.first) && is_set(environment, names.second);
  });
  return launcher != local_variables.end() && std::string_view(launcher->first).starts_with("SLURM");
}

LaunchFacts read_launch_facts(const Environment& environment) {
  LaunchFacts facts;
  for (const auto& [size, rank] : local_variables)
    if (is_set(environment, size) && is_set(environment, rank)) {
      facts.local_ranks = std::max(1, leading_number(environment(size), 1));
      facts.local_rank = leading_number(environment(rank), 0) % facts.local_ranks;
      break;
    }
  facts.cores = cores_of_this_process();
  facts.cpu_limit = control_group_cores();
  // Slurm says what it was asked for; without a plugin that binds, nothing comes of it.
  const char* const slurm_binding = environment("SLURM_CPU_BIND_TYPE");
  const bool unbound_by_slurm =
      started_by_srun(environment) && (slurm_binding == nullptr || std::string_view(slurm_binding).starts_with("none"));
  facts.bound_by_launcher = facts.local_ranks == 1 ||
                            (!unbound_by_slurm && !names_cores(environment) && launcher_has_other_cores(facts.cores));
  return facts;
}

LaunchPlan plan_launch(const LaunchFacts& facts, const Environment& environment) {
  LaunchPlan plan;
  const int cores = static_cast<int>(facts.cores.size());
  const int share = facts.bound_by_launcher ? cores : cores / facts.local_ranks;  // 0: more ranks than cores
  const int allowed = facts.cpu_limit > 0 ? static_cast<int>(facts.cpu_limit / facts.local_ranks) : share;
  const int wanted = std::max(1, std::min(share, allowed));
  const int per_task = facts.bound_by_launcher ? leading_number(environment("SLURM_CPUS_PER_TASK"), wanted) : wanted;
  plan.num_threads =
      std::max(1, leading_number(environment("OMP_NUM_THREADS"), std::min(wanted, std::max(1, per_task))));
  plan.ranks_share_cores = facts.local_ranks > 1 && plan.num_threads > share;

  const char* const proc_bind = environment("OMP_PROC_BIND");
  const bool user_binds = proc_bind != nullptr || is_set(environment, "OMP_PLACES") ||
                          is_set(environment, "GOMP_CPU_AFFINITY") || is_set(environment, "KMP_AFFINITY");
  const bool may_bind = !is_zero(environment("ESPALIER_BIND"));
  const bool fits = plan.num_threads <= share;
  const bool openmp_binds = (proc_bind != nullptr && strcasecmp(proc_bind, "false") != 0) ||
                            (proc_bind == nullptr && is_set(environment, "OMP_PLACES"));
  if (may_bind && !facts.bound_by_launcher && !names_cores(environment) &&
      (user_binds ? openmp_binds && plan.num_threads <= std::max(1, share) : fits)) {
    const int first = share > 0 ? facts.local_rank * share : facts.local_rank * cores / facts.local_ranks;
    plan.bind_to.assign(facts.cores.begin() + first, facts.cores.begin() + first + std::max(1, share));
  }

  const auto choose = [&](const char* name, const std::string& value) {
    if (!is_set(environment, name))
      plan.variables.emplace_back(name, value);
  };
  choose("OMP_NUM_THREADS", std::to_string(plan.num_threads));
  if (!user_binds)
    choose("OMP_PROC_BIND", may_bind && fits ? "close" : "false");
  if (plan.ranks_share_cores && !is_set(environment, "GOMP_SPINCOUNT"))
    choose("OMP_WAIT_POLICY", "passive");  // a thread that spins at a barrier holds the core that another rank needs
  return plan;
}

std::string prepare_launch(char** argv) {
  const Environment environment = process_environment;
  const char* const earlier = std::getenv(reexec_variable);
  if (earlier != nullptr && std::string_view(earlier).starts_with(started_again)) {
    std::string chosen = earlier + started_again.size();
    unsetenv(reexec_variable);  // children of ours choose for themselves
    return chosen;
  }
  const LaunchFacts facts = read_launch_facts(environment);
  const LaunchPlan plan = plan_launch(facts, environment);
  const std::vector<int>& cores = plan.bind_to.empty() ? facts.cores : plan.bind_to;
  const bool own_cores = facts.local_ranks > 1 && (!plan.bind_to.empty() || facts.bound_by_launcher);
  std::string chosen = fmt::format("{} rank{} on this host, {} thread{} each, {}core{} {}{}", facts.local_ranks,
                                   facts.local_ranks > 1 ? "s" : "", plan.num_threads, plan.num_threads > 1 ? "s" : "",
                                   own_cores ? "this one on " : "", cores.size() > 1 ? "s" : "", core_list_text(cores),
                                   !plan.bind_to.empty()    ? " (bound by Espalier)"
                                   : plan.ranks_share_cores ? " (shared)"
                                   : own_cores              ? " (bound by the launcher)"
                                                            : "");
  if (facts.cpu_limit > 0)
    chosen += fmt::format(", a CPU limit of {:.3g} cores", facts.cpu_limit);
  if (plan.variables.empty() && plan.bind_to.empty())
    return chosen;
  if (earlier != nullptr && !is_zero(earlier) && std::string_view(earlier) != "1")
    return chosen;  // it will be refused
  if (is_zero(earlier))
    return chosen + ", left as it is (ESPALIER_REEXEC=0)";
  // Before libgomp loads again: it reads the cores it may use at that moment, and may have bound this thread to one.
  if (cores != cores_of_this_thread())
    bind_this_process(cores);
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const auto& [name, value] = plan.variables[i];
    setenv(name.c_str(), value.c_str(), 0);
    chosen += fmt::format("{}{}={}", i == 0 ? "; Espalier has set " : " ", name, value);
  }
  setenv(reexec_variable, (std::string(started_again) + chosen).c_str(), 1);
  start_again(argv);
  unsetenv(reexec_variable);  // no /proc, or no right to: go on with what the libraries have read
  return chosen + " (too late for this process: it could not start itself again)";
}

}  // namespace espalier
