// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "io/file.hpp"
#include "parallel/collectives/collectives.hpp"
#include "tests/support/world.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/prediction/gemm_rate.hpp"

namespace espalier::test {
namespace {

TEST(GemmRate, EachLibraryHasOne) {
  const MatmulLibrary before = matmul_library();
  const std::vector<double> rates = measure_matmul_rates(ScalarType::fp32, ExecSpace(), 64, 1);
  EXPECT_EQ(matmul_library(), before);
  ASSERT_EQ(rates.size(), matmul_libraries().size());
  const std::vector<MatmulLibrary> libraries = matmul_libraries();
  for (std::size_t i = 0; i < rates.size(); ++i)
    EXPECT_EQ(rates[i] > 0, libraries[i] != MatmulLibrary::cublaslt_tf32) << to_string(libraries[i]);
}

// What rounds its operands is measured against itself, and no other is measured against it.
TEST(GemmRate, FewerBitsSetNoPeakOfOthers) {
  const MatmulLibrary before = matmul_library();
  set_matmul_library(MatmulLibrary::cublaslt);
  EXPECT_TRUE(sets_a_peak(MatmulLibrary::cublaslt));
  EXPECT_FALSE(sets_a_peak(MatmulLibrary::cublaslt_tf32));
  set_matmul_library(MatmulLibrary::cublaslt_tf32);
  EXPECT_TRUE(sets_a_peak(MatmulLibrary::cublaslt_tf32));
  EXPECT_TRUE(sets_a_peak(MatmulLibrary::tiled));
  set_matmul_library(before);
}

TEST(GemmRate, RanksThatShareCoresShareTheirRate) {
  constexpr Index size = 512;
  // Of one rank while the others wait.
  const auto measure_alone = [] {
    double rate = 0;
    if (world().rank() == 0)
      for (const double each : measure_matmul_rates(ScalarType::fp32, ExecSpace(), size, 8))
        rate = std::max(rate, each);
    broadcast(world(), std::span<double>(&rate, 1), 0);
    return rate;
  };
  // Twice as many ranks as cores: half the rate each. What else runs on the machine may slow the rank that was alone:
  // it is measured before and after, and all of it up to three times.
  const double most = world().context().wait.ranks_share_cores ? 0.85 : 1.3;
  double alone = 0;
  double together = 0;
  for (int attempt = 0; attempt == 0 || (attempt < 3 && together >= most * alone * world().size()); ++attempt) {
    const double before_it = measure_alone();
    const MatmulLibrary before = matmul_library();
    together = measure_gemm_rate(ScalarType::fp32, world(), size);
    EXPECT_EQ(matmul_library(), before);
    EXPECT_EQ(together, all_reduce(world(), together, ReduceOp::max)) << "the same on every rank";
    EXPECT_GT(together, 0);
    alone = std::max(before_it, measure_alone());
  }
  EXPECT_LT(together, most * alone * world().size());
}

// By run.cluster, if it is of a machine like this one and names the maker's peak.
TEST(PeakRate, is_that_of_all_devices_where_it_is_known) {
  if (!exec_is_host)
    GTEST_SKIP() << "a GPU has a name";
  const SharedFolder folder("peak_rate");
  const std::string file = folder / "cluster.toml";
  const auto rate = [&](const std::string& cluster) {
    const bool is_text = cluster.starts_with("[");
    if (is_text && world().rank() == 0)
      write_file_atomically(file, cluster);
    barrier(world());
    RunConfig config;
    config.layout.precision = Precision::bf16;
    config.run.cluster = is_text ? file : cluster;
    const std::optional<double> peak = peak_rate(config, world());
    barrier(world());
    return peak;
  };
  const std::string of_host = "[cluster]\npreset = \"h100\"\n[device]\nmoves_messages = true\n[bf16]\n";
  EXPECT_EQ(rate(""), std::nullopt);
  EXPECT_EQ(rate("h100"), std::nullopt) << "another machine";
  EXPECT_EQ(rate(of_host + "peak = \"900 TFLOP/s\"\n"), 900e12 * world().size());
  EXPECT_EQ(rate(of_host + "gemm_rate = \"700 TFLOP/s\"\n"), 989e12 * world().size()) << "the preset's";
  const std::string own =
      "[cluster]\nnodes = 1\ndevices_per_node = 8\n"
      "[device]\nmemory = \"64 GB\"\nmemory_bandwidth = \"2 TB/s\"\nprocessors = 100\nkernel_start = \"6 us\"\n"
      "moves_messages = true\n"
      "[node_link]\nbandwidth = \"250 GB/s\"\nlatency = \"4 us\"\n"
      "[bf16]\nmatmul_efficiency = 0.7\nhalf_depth = 90.0\nfill_waves = 0.2\nattention_efficiency = 0.4\n";
  EXPECT_EQ(rate(own + "peak = \"300 TFLOP/s\"\n"), 300e12 * world().size());
  EXPECT_EQ(rate(own + "gemm_rate = \"300 TFLOP/s\"\n"), std::nullopt) << "the peak is unknown";
}

}  // namespace
}  // namespace espalier::test
