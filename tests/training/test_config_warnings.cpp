// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "core/types.hpp"
#include "training/config/config_warnings.hpp"

namespace espalier::test {
namespace {

// Those of a run on one rank, of any build: what this one lacks is told by other warnings, which are left out.
std::vector<std::string> warnings_of(std::vector<std::string> settings) {
  settings.insert(settings.begin(), {"data.train=[\"train.bin\"]", "run.steps=100"});
  const RunConfig config = parse_run_config("", "run.toml", settings, 1, Libraries::known);
  std::vector<std::string> warnings = config_warnings(config, 1);
  std::erase_if(warnings, [](const std::string& text) { return text.find("is not in this build") != text.npos; });
  return warnings;
}

using Warnings = std::vector<std::string>;

TEST(ConfigWarnings, NoneWhereEverySettingDoesSomething) {
  EXPECT_EQ(warnings_of({}), Warnings{});
  for (const std::string compute : {"fp32", "bf16", "fp16", "fp64"})
    EXPECT_EQ(warnings_of({"precision.compute=" + compute}), Warnings{});
}

TEST(ConfigWarnings, TellWhatDoesNothing) {
  EXPECT_EQ(warnings_of({"precision.initial_loss_scale=2"}),
            Warnings{"the loss scale of [precision] does nothing: compute is fp32, which needs none"});
  EXPECT_EQ(warnings_of({"parallel.zero_stage=1"}),
            Warnings{"parallel.zero_stage does nothing: there is only one replica"});
  EXPECT_EQ(warnings_of({"optimizer.warmup_steps=100"}),
            Warnings{"the run ends inside the warm-up of the learning rate: optimizer.warmup_steps is 100, and it has "
                     "100 steps"});
}

TEST(ConfigWarnings, TellOfLibrariesThatHaveNoKernelsForTheType) {
  const auto with = [](const std::string& library, const std::string& compute) {
    return warnings_of({library, "precision.compute=" + compute});
  };
  EXPECT_EQ(with("run.matmul=cublaslt_tf32", "fp32"), Warnings{});
  for (const std::string compute : {"bf16", "fp16", "fp64"}) {
    EXPECT_EQ(with("run.matmul=cublaslt_tf32", compute),
              Warnings{"run.matmul = \"cublaslt_tf32\" rounds only fp32 matmuls, and compute is " + compute +
                       ": it does what \"cublaslt\" does"});
    EXPECT_EQ(with("run.matmul=cublaslt", compute), Warnings{});
  }
  for (const std::string compute : {"fp32", "fp64"})
    EXPECT_EQ(with("run.attention=cudnn", compute),
              Warnings{"run.attention = \"cudnn\" computes only in 16 bits, and compute is " + compute +
                       ": our own kernels do its work"});
  for (const std::string compute : {"bf16", "fp16"}) {
    EXPECT_EQ(with("run.attention=cudnn", compute), Warnings{});
    EXPECT_EQ(with("run.matmul=kokkos_kernels", compute).empty(), exec_is_host);
  }
  EXPECT_EQ(with("run.matmul=onednn", "fp32"), Warnings{});
  EXPECT_EQ(with("run.matmul=onednn", "fp64"),
            Warnings{"run.matmul = \"onednn\" has no fp64 matmuls, and compute is fp64: another library "
                     "multiplies"});
}

}  // namespace
}  // namespace espalier::test
