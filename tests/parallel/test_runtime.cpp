// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/control_group.hpp"
#include "core/error.hpp"
#include "parallel/collectives/wait.hpp"
#include "parallel/launch/host_cores.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/launch/openmp_threads.hpp"
#include "parallel/launch/process_limits.hpp"
#include "parallel/launch/runtime.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

Environment environment(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

LaunchFacts facts(int ranks, int rank, int cores, bool bound = false) {
  LaunchFacts result{.local_ranks = ranks,
                     .local_rank = rank,
                     .cores = std::vector<int>(static_cast<std::size_t>(cores)),
                     .bound_by_launcher = bound};
  std::iota(result.cores.begin(), result.cores.end(), 10);
  return result;
}

std::string chosen(const LaunchPlan& plan, const std::string& name) {
  for (const auto& [variable, value] : plan.variables)
    if (variable == name)
      return value;
  return "";
}

TEST(Launch, RanksGetCoresOfTheirOwnWhereThereAreEnough) {
  const LaunchPlan plan = plan_launch(facts(3, 1, 8), environment({}));
  EXPECT_EQ(plan.num_threads, 2);
  EXPECT_EQ(plan.bind_to, (std::vector<int>{12, 13}));
  EXPECT_EQ(chosen(plan, "OMP_NUM_THREADS"), "2");
  EXPECT_EQ(chosen(plan, "OMP_PROC_BIND"), "close");
  EXPECT_EQ(chosen(plan, "OMP_WAIT_POLICY"), "");
  EXPECT_FALSE(plan.ranks_share_cores);
}

TEST(Launch, MoreRanksThanCoresShareThem) {
  const LaunchPlan plan = plan_launch(facts(4, 3, 2), environment({}));
  EXPECT_EQ(plan.num_threads, 1);
  EXPECT_TRUE(plan.bind_to.empty());
  EXPECT_TRUE(plan.ranks_share_cores);
  EXPECT_EQ(chosen(plan, "OMP_PROC_BIND"), "false");
  EXPECT_EQ(chosen(plan, "OMP_WAIT_POLICY"), "passive");
}

TEST(Launch, WhatTheLauncherBoundStaysSo) {
  const LaunchPlan plan = plan_launch(facts(4, 1, 6, true), environment({}));
  EXPECT_EQ(plan.num_threads, 6);
  EXPECT_TRUE(plan.bind_to.empty());
  EXPECT_FALSE(plan.ranks_share_cores);
}

TEST(Launch, TheUserWins) {
  const LaunchPlan plan = plan_launch(
      facts(2, 0, 4), environment({{"OMP_NUM_THREADS", "4"}, {"GOMP_SPINCOUNT", "7"}, {"OMP_PLACES", "cores"}}));
  EXPECT_EQ(plan.num_threads, 4);
  EXPECT_TRUE(plan.ranks_share_cores);
  EXPECT_TRUE(plan.bind_to.empty());
  EXPECT_TRUE(plan.variables.empty());
  EXPECT_TRUE(plan_launch(facts(2, 0, 4), environment({{"ESPALIER_BIND", "0"}})).bind_to.empty());
  EXPECT_EQ(chosen(plan_launch(facts(2, 0, 4), environment({{"ESPALIER_BIND", "0"}})), "OMP_PROC_BIND"), "false");
  const LaunchPlan fewer = plan_launch(facts(2, 1, 8), environment({{"OMP_NUM_THREADS", "1"}}));
  EXPECT_EQ(fewer.bind_to, (std::vector<int>{14, 15, 16, 17}));
}

// OpenMP knows of no other ranks: left alone with them it binds the first threads of all to the same core.
TEST(Launch, RanksHaveCoresOfTheirOwnWhereOpenMpBinds) {
  for (const char* const name : {"OMP_PROC_BIND", "OMP_PLACES"}) {
    const Environment binds = environment({{name, name == std::string("OMP_PLACES") ? "cores" : "true"}});
    EXPECT_EQ(plan_launch(facts(2, 1, 4), binds).bind_to, (std::vector<int>{12, 13})) << name;
    EXPECT_EQ(plan_launch(facts(4, 2, 2), binds).bind_to, (std::vector<int>{11})) << "more ranks than cores";
    EXPECT_TRUE(plan_launch(facts(2, 1, 4, true), binds).bind_to.empty()) << "the launcher has done it";
  }
  EXPECT_TRUE(plan_launch(facts(2, 1, 4), environment({{"OMP_PROC_BIND", "false"}})).bind_to.empty());
  EXPECT_TRUE(plan_launch(facts(2, 1, 4), environment({{"OMP_PLACES", "{0},{1}"}})).bind_to.empty());
  EXPECT_TRUE(plan_launch(facts(2, 1, 4), environment({{"GOMP_CPU_AFFINITY", "0-1"}})).bind_to.empty());
}

TEST(Launch, AControlGroupLimitsTheThreads) {
  LaunchFacts limited = facts(2, 1, 8);
  limited.cpu_limit = 3;
  EXPECT_EQ(plan_launch(limited, environment({})).num_threads, 1);
  limited.cpu_limit = 0.5;
  EXPECT_EQ(plan_launch(limited, environment({})).num_threads, 1);
  limited.cpu_limit = 64;
  EXPECT_EQ(plan_launch(limited, environment({})).num_threads, 4);
  EXPECT_EQ(cores_in_cpu_max("150000 100000"), 1.5);
  for (const char* const text : {"max 100000", "-1 100000", "", " ", "0 100000", "100000 0"})
    EXPECT_EQ(cores_in_cpu_max(text), 0) << text;
}

TEST(Launch, OneRankAlone) {
  const LaunchPlan plan = plan_launch(facts(1, 0, 2, true), environment({}));
  EXPECT_EQ(plan.num_threads, 2);
  EXPECT_TRUE(plan.bind_to.empty());
  EXPECT_FALSE(plan.ranks_share_cores);
}

TEST(Launch, LaunchersAreKnownByTheirVariables) {
  const auto hydra = read_launch_facts(environment({{"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "3"}}));
  EXPECT_EQ(hydra.local_ranks, 4);
  EXPECT_EQ(hydra.local_rank, 3);
  const auto open_mpi =
      read_launch_facts(environment({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}));
  EXPECT_EQ(open_mpi.local_ranks, 2);
  const std::map<std::string, std::string> srun{{"SLURM_STEP_TASKS_PER_NODE", "8(x2),3"}, {"SLURM_LOCALID", "5"}};
  EXPECT_EQ(read_launch_facts(environment(srun)).local_ranks, 8);
  EXPECT_EQ(read_launch_facts(environment(srun)).local_rank, 5);
  EXPECT_FALSE(read_launch_facts(environment(srun)).bound_by_launcher);
  EXPECT_TRUE(started_by_srun(environment(srun)));
  std::map<std::string, std::string> below_srun = srun;
  below_srun.insert({{"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "3"}});
  EXPECT_FALSE(started_by_srun(environment(below_srun)));
  EXPECT_FALSE(started_by_srun(environment({{"SLURM_LOCALID", "0"}}))) << "a batch script";
  EXPECT_EQ(read_launch_facts(environment({})).local_ranks, 1);
  EXPECT_FALSE(read_launch_facts(environment({})).cores.empty());
}

TEST(Launch, RanksAreCountedByTheLauncher) {
  const LaunchedRank open_mpi =
      launched_rank(environment({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMI_SIZE", "9"}}));
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.size, 4);
  EXPECT_EQ(launched_rank(environment({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})).size, 2);
  EXPECT_EQ(launched_rank(environment({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "5"}})).rank, 5);
  EXPECT_EQ(launched_rank(environment({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}})).size, 1) << "a batch script";
  EXPECT_EQ(launched_rank(environment({})).size, 1);
  EXPECT_EQ(launched_rank().size, test::world().size());
  EXPECT_EQ(launched_rank().rank, test::world().rank());
}

TEST(Launch, TheLauncherOfAnotherMpiIsRefused) {
  const LaunchedRank launched =
      launched_rank(environment({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}));
  EXPECT_NO_THROW(require_own_launcher(launched, 4, "MPICH"));
  EXPECT_NO_THROW(require_own_launcher({}, 1, "MPICH"));
  EXPECT_NO_THROW(require_own_launcher({}, 4, "MPICH"));
  try {
    require_own_launcher(launched, 1, "MPICH 4");
    ADD_FAILURE() << "four lone ranks were taken for jobs";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    for (const char* const part : {"OMPI_COMM_WORLD_SIZE=4", "process 3 of 4", "MPICH 4", "mpiexec.mpich"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Launch, CoreLists) {
  EXPECT_EQ(core_list_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(core_list_text({}), "");
  EXPECT_FALSE(cores_of_this_thread().empty());
}

TEST(ProcessLimits, EachIsRefusedByItsName) {
  const auto refused = [](const ProcessLimits& limits, ExitCode code, const std::string& name) {
    try {
      require_process_limits(limits, 4, 2);
      ADD_FAILURE() << "not refused: " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  EXPECT_NO_THROW(require_process_limits({}, 4, 2));
  EXPECT_NO_THROW(require_process_limits(read_process_limits(), 1, 1));
  refused({.memory = {.bytes = 1 << 29, .name = "ulimit -v 900000"}}, ExitCode::memory, "ulimit -v 900000");
  refused({.stack = 65536}, ExitCode::memory, "ulimit -s 64");
  refused({.file_size = 1 << 20}, ExitCode::write, "ulimit -f 1024");
  refused({.open_files = 20}, ExitCode::memory, "ulimit -n 20");
  refused({.shared_memory = 16 << 20}, ExitCode::memory, "/dev/shm");
}

TEST(ProcessLimits, SizesOfStacks) {
  EXPECT_EQ(stack_size_in("512"), std::size_t{512} << 10);
  EXPECT_EQ(stack_size_in("16384b"), 16384U);
  EXPECT_EQ(stack_size_in(" 8 M "), std::size_t{8} << 20);
  for (const char* const text : {"", "big", "8x", "8 M M", "99999999999999999g"})
    EXPECT_EQ(stack_size_in(text), 0U) << text;
}

TEST(HostCores, CrowdingIsTold) {
  HostCores host;
  host.host = "n1";
  host.ranks = 2;
  host.threads = 4;
  host.cores = {0, 1, 2, 3};
  EXPECT_EQ(crowding_text(host), "");
  host.cores = {0, 1};
  EXPECT_NE(crowding_text(host).find("4 threads on 2 cores of host n1"), std::string::npos) << crowding_text(host);
  EXPECT_NE(crowding_text(host).find("OMP_NUM_THREADS=1"), std::string::npos) << crowding_text(host);
  host.cores = {0};
  EXPECT_NE(crowding_text(host).find("at most 1 rank here"), std::string::npos) << crowding_text(host);
  host.cores = {0, 1, 2, 3};
  host.limit = 2.5;
  EXPECT_NE(crowding_text(host).find("cpu.max"), std::string::npos) << crowding_text(host);
}

TEST(OpenMpThreads, VariablesThatSayNothingAreRefused) {
  const auto refused = [](const char* name, const char* value) {
    try {
      require_openmp_settings({}, environment({{name, value}}));
    } catch (const Error& error) {
      return std::string(error.what()).find(std::string(name) + "=" + value) != std::string::npos;
    }
    return false;
  };
  for (const char* const value : {"0", "-1", "abc", "", "2,x", "1.5"})
    EXPECT_TRUE(refused("OMP_NUM_THREADS", value)) << value;
  for (const char* const value : {"1", "4,2", " 8 ", "+3"})
    EXPECT_FALSE(refused("OMP_NUM_THREADS", value)) << value;
  EXPECT_TRUE(refused("OMP_DYNAMIC", "2"));
  EXPECT_FALSE(refused("OMP_DYNAMIC", "FALSE"));
  EXPECT_TRUE(refused("OMP_PROC_BIND", "perhaps"));
  EXPECT_FALSE(refused("OMP_PROC_BIND", "spread,close"));
  EXPECT_THROW(require_openmp_settings({.count = 513, .setting = "OMP_NUM_THREADS=513"}, environment({})), Error);
}

TEST(Wait, KeepsTheDeadline) {
  for (const auto& [shares, sleeps] : {std::pair(false, false), {true, false}, {true, true}}) {
    Waiter waiter({.ranks_share_cores = shares, .always_sleeps = sleeps, .deadline_seconds = 0.05});
    while (waiter.pause()) {
    }
    EXPECT_GE(waiter.seconds(), 0.05);
    EXPECT_LT(waiter.seconds(), 2.0);
  }
}

TEST(Runtime, SaysWhatWasChosen) {
  const std::string text = test::runtime().describe();
  EXPECT_NE(text.find(std::to_string(test::world().size()) + " rank"), std::string::npos) << text;
  EXPECT_NE(text.find("thread"), std::string::npos) << text;
  EXPECT_EQ(std::getenv("ESPALIER_REEXEC"), nullptr) << "children must choose for themselves";
  EXPECT_FALSE(mpi_library_version().empty());
  EXPECT_EQ(mpi_library_version().find('\0'), std::string::npos) << "it would cut what is printed after it";
  if (test::world().rank() == 0)
    std::printf("%s; %s\n", text.c_str(), mpi_library_version().c_str());
}

}  // namespace
}  // namespace espalier
