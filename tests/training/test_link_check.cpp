// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/emulated_links.hpp"
#include "tests/support/world.hpp"
#include "training/loop/link_check.hpp"

namespace espalier::test {
namespace {

// Latencies far above what ranks that share cores lose by chance.
LinkTimes check_emulated(const LinkDelay& delayed) {
  barrier(world());
  emulate_links(world(), {.within_node = {.latency = 0.02}, .between_nodes = {}, .delayed = delayed});
  LinkTimes links;
  {
    const ProcessMesh mesh(world(), make_layout(world().size(), 1, 0, 1));
    links = check_links(mesh);
  }
  barrier(world());
  emulate_links(world(), {});
  return links;
}

TEST(LinkCheck, EqualLinksAreNotNamed) {
  const LinkTimes links = check_emulated({});
  EXPECT_EQ(links.typical(Axis::tp), 0) << "axes of one rank have no links";
  EXPECT_TRUE(links.slow.empty());
  EXPECT_GE(links.typical(Axis::dp), 0.02);
}

TEST(LinkCheck, NamesTheDelayedLinkAndItsDirection) {
  const std::vector<LinkTimes::Slow> slow = check_emulated({.from = 1, .to = 0, .seconds = 0.1}).slow;
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].axis, Axis::dp);
  EXPECT_EQ(slow[0].from, 1);
  EXPECT_EQ(slow[0].to, 0);
  EXPECT_NEAR(slow[0].seconds, 0.12, 0.02);
}

}  // namespace
}  // namespace espalier::test
