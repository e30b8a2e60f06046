// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/tiny_run.hpp"
#include "training/loop/stragglers.hpp"

namespace espalier::test {
namespace {

TEST(FindStragglers, ComparesWithThePeersOfTheStage) {
  EXPECT_EQ(find_stragglers({1, 1, 1.5, 1}, {0, 0, 0, 0}, 0.2), (std::vector<Straggler>{{2, 0.5}}));
  EXPECT_TRUE(find_stragglers({1, 1, 1.5, 1}, {0, 0, 0, 0}, 0.5).empty()) << "50 % is not above 50 %";
  EXPECT_TRUE(find_stragglers({1, 1, 5, 5}, {0, 0, 1, 1}, 0.2).empty()) << "another stage does other work";
  EXPECT_EQ(find_stragglers({1, 1.25, 5, 5}, {0, 0, 1, 1}, 0.2), (std::vector<Straggler>{{1, 0.25}}));
  EXPECT_TRUE(find_stragglers({1, 9}, {0, 1}, 0.2).empty()) << "nobody does the same";
  // Two slow ones of five, a fast one beside them.
  EXPECT_EQ(find_stragglers({2, 1, 1, 0.5, 4}, {0, 0, 0, 0, 0}, 0.2), (std::vector<Straggler>{{0, 1}, {4, 3}}));
  EXPECT_TRUE(find_stragglers({0, 0}, {0, 0}, 0.2).empty()) << "no work is as long as none";
}

// Steps in which rank 1 works `factor` times as long; every seventh one is an outlier on every rank.
class Steps {
 public:
  explicit Steps(StragglerWatch& watch) : watch_(watch) {}

  std::vector<std::string> take(Index count, double factor) {
    std::vector<std::string> lines;
    for (Index i = 0; i < count; ++i) {
      StepReport report;
      report.step = ++step_;
      report.seconds[Phase::forward] = (step_ % 7 == 0 ? 3.0 : 1.0) * (world().rank() == 1 ? factor : 1.0);
      report.seconds[Phase::bubble] = 100.0 * world().rank();  // waiting is no work
      for (const std::string& line : watch_.after_step(report))
        lines.push_back(line);
    }
    return lines;
  }

 private:
  StragglerWatch& watch_;
  Index step_ = 0;
};

TEST(StragglerWatch, NamesASlowRankOnceAndAgainWhenItIsOver) {
  const SharedFolder folder("stragglers");
  const RunConfig config = tiny_config(folder, world().size(), {"stability.straggler_window=10"});
  const ProcessMesh mesh(world(), make_run_layout(config, world().size()).mesh());
  StragglerWatch watch(config.stability, mesh);
  Steps steps(watch);
  const bool tells = world().rank() == 0 && world().size() > 1;
  EXPECT_TRUE(steps.take(10, 1.0).empty());
  EXPECT_TRUE(steps.take(10, 1.5).empty()) << "once may be chance";
  EXPECT_TRUE(steps.take(10, 1.0).empty());
  EXPECT_TRUE(steps.take(19, 1.5).empty());
  const std::vector<std::string> named = steps.take(1, 1.5);
  ASSERT_EQ(named.size(), tells ? 1U : 0U);
  if (tells) {
    EXPECT_NE(named[0].find("rank 1 (stage 0) on "), std::string::npos) << named[0];
    EXPECT_NE(named[0].find("50 % longer"), std::string::npos) << named[0];
    EXPECT_NE(named[0].find("since step 31"), std::string::npos) << named[0];
    EXPECT_EQ(watch.to_json().at("stragglers").at(0).at("rank"), 1);
    EXPECT_NEAR(watch.to_json().at("stragglers").at(0).at("longer_by").get<double>(), 0.5, 1e-9);
  }
  EXPECT_TRUE(steps.take(50, 1.6).empty()) << "it is known";
  const std::vector<std::string> over = steps.take(10, 1.0);
  ASSERT_EQ(over.size(), tells ? 1U : 0U);
  if (tells) {
    EXPECT_NE(over[0].find("as long as the others again"), std::string::npos) << over[0];
    EXPECT_TRUE(watch.to_json().at("stragglers").empty());
  }
}

TEST(StragglerWatch, CostsNothingWhenOff) {
  const SharedFolder folder("off");
  const RunConfig config = tiny_config(folder, world().size(), {"stability.straggler_window=0"});
  const ProcessMesh mesh(world(), make_run_layout(config, world().size()).mesh());
  StragglerWatch watch(config.stability, mesh);
  const auto before = mesh.world().traffic().bytes;
  Steps steps(watch);
  EXPECT_TRUE(steps.take(50, 9).empty());
  EXPECT_EQ(mesh.world().traffic().bytes, before);
}

}  // namespace
}  // namespace espalier::test
