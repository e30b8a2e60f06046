// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// main of the test programs that use MPI: Runtime, then GoogleTest on all ranks. Rank 0 prints the progress, any rank
// its failures. A failure on any rank fails the program, and so do another number of ranks than asked for and a filter
// without tests.
//   --expect_ranks=N   fail unless started on N ranks (an mpiexec of another MPI starts N times one rank)
//   --host_links       tensors go over links as NCCL's, see tests/support/host_links.hpp
//   --hang_rank=R      rank R waits until a debugger sets `release` to 1
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/runtime.hpp"
#include "tests/support/host_links.hpp"
#include "tests/support/world.hpp"

namespace {

constexpr double deadline_seconds = 60;  // a rank that fails an assertion leaves the others waiting

const espalier::Runtime* current_runtime = nullptr;

class PrintFailuresWithRank : public testing::EmptyTestEventListener {
 public:
  explicit PrintFailuresWithRank(int rank) : rank_(rank) {}
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed())
      return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n%s\n", rank_,
                 result.file_name() != nullptr ? result.file_name() : "unknown", result.line_number(), test_.c_str(),
                 result.message());
  }

 private:
  int rank_;
  std::string test_;  // GoogleTest holds a lock while it reports, so it cannot be asked
};

int number_after(int argc, char** argv, std::string_view option) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(option))
      return std::atoi(argv[i] + option.size());
  return -1;
}

bool has_option(int argc, char** argv, std::string_view option) {
  return std::any_of(argv + 1, argv + argc, [&](const char* argument) { return argument == option; });
}

void wait_for_debugger(int rank) {
  volatile int release = 0;
  std::fprintf(stderr, "[rank %d] process %d waits for a debugger: set var release = 1\n", rank,
               static_cast<int>(getpid()));
  while (release == 0)
    sleep(1);
}

}  // namespace

const espalier::Communicator& espalier::test::world() { return current_runtime->world(); }
const espalier::Runtime& espalier::test::runtime() { return *current_runtime; }

int main(int argc, char** argv) {
  return espalier::run_job(argc, argv, [&](espalier::Runtime& runtime) {
    current_runtime = &runtime;
    testing::InitGoogleTest(&argc, argv);
    const int rank = runtime.rank();
    if (number_after(argc, argv, "--hang_rank=") == rank)
      wait_for_debugger(rank);
    const int expected = number_after(argc, argv, "--expect_ranks=");
    if (expected > 0 && expected != runtime.size())
      throw espalier::Error(espalier::ExitCode::usage,
                            {.what = "the test was started on another number of ranks",
                             .where = espalier::mpi_library_version(),
                             .got = std::to_string(runtime.size()) + " ranks",
                             .wanted = std::to_string(expected) + " ranks",
                             .todo = "use the mpiexec of this MPI library (MPIEXEC_EXECUTABLE)"});

    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    if (rank != 0)
      delete listeners.Release(listeners.default_result_printer());
    if (runtime.size() > 1)
      listeners.Append(new PrintFailuresWithRank(rank));
    runtime.world().set_deadline(deadline_seconds);
    if (has_option(argc, argv, "--host_links"))
      espalier::test::use_host_links(runtime.world());

    int failed = RUN_ALL_TESTS();
    if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
      std::fprintf(stderr, "[rank %d] the filter selects no test\n", rank);
      failed = 1;
    }
    return static_cast<int>(espalier::all_reduce(runtime.world(), std::int32_t{failed}, espalier::ReduceOp::max));
  });
}
