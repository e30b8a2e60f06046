// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/emulated_links.hpp"
#include "tests/support/world.hpp"
#include "training/loop/run_facts.hpp"

namespace espalier::test {
namespace {

// Latencies far above what ranks that share cores lose by chance.
nlohmann::json check_emulated(const LinkDelay& delayed) {
  barrier(world());
  emulate_links(world(), {.within_node = {.latency = 0.02}, .between_nodes = {}, .delayed = delayed});
  nlohmann::json links;
  {
    const ProcessMesh mesh(world(), make_layout(world().size(), 1, 0, 1));
    links = check_links(mesh);
  }
  barrier(world());
  emulate_links(world(), {});
  return links;
}

TEST(LinkCheck, EqualLinksAreNotNamed) {
  const nlohmann::json links = check_emulated({});
  ASSERT_EQ(links.size(), 1u) << "axes of one rank have no links";
  EXPECT_TRUE(links.at("dp").at("slow").empty()) << links.dump();
  EXPECT_GE(links.at("dp").at("typical_seconds").get<double>(), 0.02);
}

TEST(LinkCheck, NamesTheDelayedLinkAndItsDirection) {
  const nlohmann::json slow = check_emulated({.from = 1, .to = 0, .seconds = 0.1}).at("dp").at("slow");
  ASSERT_EQ(slow.size(), 1u) << slow.dump();
  EXPECT_EQ(slow[0].at("from"), 1);
  EXPECT_EQ(slow[0].at("to"), 0);
  EXPECT_NEAR(slow[0].at("seconds").get<double>(), 0.12, 0.02);
}

}  // namespace
}  // namespace espalier::test
