// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "parallel/collectives.hpp"
#include "tests/support/world.hpp"
#include "training/gemm_rate.hpp"

namespace espalier::test {
namespace {

TEST(GemmRate, EachLibraryHasOne) {
  const MatmulLibrary before = matmul_library();
  const std::vector<double> rates = measure_matmul_rates<float>(ExecSpace(), 64, 1);
  EXPECT_EQ(matmul_library(), before);
  ASSERT_EQ(rates.size(), matmul_libraries().size());
  for (const double rate : rates)
    EXPECT_GT(rate, 0);
}

TEST(GemmRate, RanksThatShareCoresShareTheirRate) {
  double alone = 0;  // of one rank while the others wait, the best of before and after
  const auto measure_alone = [&] {
    if (world().rank() == 0)
      for (const double rate : measure_matmul_rates<float>(ExecSpace(), 512, 8))
        alone = std::max(alone, rate);
    broadcast(world(), std::span<double>(&alone, 1), 0);
  };
  // Twice as many ranks as cores: half the rate each. What else runs on the machine disturbs one measurement or
  // another: it has to hold once.
  const double most = world().context().wait.ranks_share_cores ? 0.85 : 1.3;
  double together = 0;
  for (int attempt = 0; attempt == 0 || (attempt < 10 && together >= most * alone * world().size()); ++attempt) {
    measure_alone();
    const MatmulLibrary before = matmul_library();
    together = measure_gemm_rate<float>(world());
    EXPECT_EQ(matmul_library(), before);
    EXPECT_EQ(together, all_reduce(world(), together, ReduceOp::max)) << "the same on every rank";
    EXPECT_GT(together, 0);
    measure_alone();
  }
  EXPECT_LT(together, most * alone * world().size());
}

}  // namespace
}  // namespace espalier::test
