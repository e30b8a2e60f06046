// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/launch_environment.hpp"
#include "parallel/runtime.hpp"
#include "parallel/wait.hpp"
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

TEST(Wait, PolicyFollowsWhetherRanksShareCores) {
  EXPECT_EQ((WaitSettings{.ranks_share_cores = true}).resolved(), WaitPolicy::yield);
  EXPECT_EQ((WaitSettings{.ranks_share_cores = false}).resolved(), WaitPolicy::block);
  EXPECT_EQ((WaitSettings{.policy = WaitPolicy::block, .ranks_share_cores = true}).resolved(), WaitPolicy::block);
  EXPECT_EQ(wait_policy_from("auto"), WaitPolicy::automatic);
  EXPECT_THROW(wait_policy_from("spin"), Error);
}

TEST(Wait, EveryPolicyKeepsTheDeadline) {
  for (const WaitPolicy policy : {WaitPolicy::yield, WaitPolicy::block}) {
    Waiter waiter({.policy = policy, .ranks_share_cores = false, .deadline_seconds = 0.05});
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
