// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// main of the test programs that need no MPI: Kokkos, the memory ledger, then GoogleTest. A filter without tests fails.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

#include "core/memory_ledger.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Kokkos::initialize(argc, argv);
  espalier::MemoryLedger::instance().install();
  int failed = RUN_ALL_TESTS();
  if (!testing::GTEST_FLAG(list_tests) && testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "the filter selects no test\n");
    failed = 1;
  }
  Kokkos::finalize();
  return failed;
}
