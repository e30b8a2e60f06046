// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that were started unlike are refused before they begin.
#include <gtest/gtest.h>

#include "parallel/collectives/collectives.hpp"
#include "tests/io/support.hpp"
#include "tests/support/world.hpp"
#include "training/config/run_config.hpp"
#include "training/loop/same_launch.hpp"

namespace espalier::test {
namespace {

std::string config_with(const std::string& override_text) {
  return to_toml(parse_run_config("", "test", {"data.train=[\"x\"]", "run.steps=10", override_text}, 1));
}

TEST(SameLaunch, AlikeIsFine) {
  require_same_launch(world(), config_with("run.seed=3"));
  EXPECT_EQ(executable_hash().size(), 32U);
}

TEST(SameLaunchPeers, NamesTheRanksAndTheFirstDifferentLine) {
  ASSERT_GT(world().size(), 1) << "nobody to differ from";
  for (int odd = 0; odd < world().size(); ++odd) {
    const Error error = caught([&] {
      require_same_launch(world(), config_with(world().rank() == odd ? "model.num_heads=4" : "model.num_heads=2"));
    });
    EXPECT_EQ(error.code(), ExitCode::usage);
    const std::string text = error.what();
    // Where rank 0 is the odd one, all others differ from it.
    const std::string who = odd > 0               ? "rank " + std::to_string(odd) + " with another config"
                            : world().size() == 2 ? "rank 1 with another config"
                                                  : "ranks 1 to " + std::to_string(world().size() - 1) + " with";
    const std::string got = odd == 0 ? "num_heads = 2" : "num_heads = 4";
    const std::string wanted = odd == 0 ? "num_heads = 4" : "num_heads = 2";
    EXPECT_NE(text.find(who), std::string::npos) << text;
    EXPECT_NE(error.report().got.find(got), std::string::npos) << text;
    EXPECT_NE(error.report().got.find("[model]"), std::string::npos) << text;
    EXPECT_NE(error.report().wanted.find(wanted), std::string::npos) << text;
  }
  barrier(world());  // all ranks are still in step
}

TEST(SameLaunchPeers, NamesAnotherProgram) {
  ASSERT_GT(world().size(), 1) << "nobody to differ from";
  const bool is_last = world().rank() == world().size() - 1;
  const std::string last = "rank " + std::to_string(world().size() - 1);
  expect_error(ExitCode::usage, {"not started in the same way", last + " from another program", "new", "old"},
               [&] { require_same_launch(world(), "same", is_last ? "new" : "old"); });
  expect_error(ExitCode::usage, {last + " from another program", last + " with another config", "a = 2", "a = 1"},
               [&] { require_same_launch(world(), is_last ? "a = 2" : "a = 1", is_last ? "new" : "old"); });
  barrier(world());
}

TEST(SameLaunch, DifferingLines) {
  const DifferingLines inside = first_differing_lines("[a]\nx = 1\n[b]\ny = 1\n", "[a]\nx = 1\n[b]\ny = 2\n");
  EXPECT_EQ(inside.first, "y = 1 in [b]");
  EXPECT_EQ(inside.second, "y = 2 in [b]");
  const DifferingLines longer = first_differing_lines("x = 1\n", "x = 1\ny = 2\n");
  EXPECT_EQ(longer.first, "(no line)");
  EXPECT_EQ(longer.second, "y = 2");
  EXPECT_EQ(first_differing_lines("same\n", "same\n").first, "");
  EXPECT_EQ(first_differing_lines("", "").second, "");
}

}  // namespace
}  // namespace espalier::test
