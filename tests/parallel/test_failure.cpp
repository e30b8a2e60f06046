// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "parallel/launch/failure.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

// Makes no links; keeps why they were given up.
class GivenUp : public DeviceLinkFactory {
 public:
  std::unique_ptr<DeviceLink> connect(const Communicator&, const std::vector<int>&, const std::string&,
                                      const LinkUse&) override {
    return nullptr;
  }
  void require_alive() const override {
    if (reason)
      throw Error(*reason);
  }
  void abort(const Error& error) override { reason = error; }

  std::optional<Error> reason;
};

class Failure : public ::testing::Test {
 protected:
  void SetUp() override { world().state()->context->device_links = links; }
  void TearDown() override { world().state()->context->device_links = nullptr; }
  std::shared_ptr<GivenUp> links = std::make_shared<GivenUp>();
};

TEST_F(Failure, WorkThatEndsWellLeavesLinksAlone) {
  bool done = false;
  abort_links_on_error(world(), [&] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_FALSE(links->reason);
  EXPECT_NO_THROW(require_links_alive(world()));
}

TEST_F(Failure, LinksAreGivenUpForTheReasonOfWhoFails) {
  EXPECT_THROW(abort_links_on_error(world(), [] { throw Error(ExitCode::memory, {.what = "full"}); }), Error);
  ASSERT_TRUE(links->reason);
  EXPECT_EQ(links->reason->code(), ExitCode::memory);
  EXPECT_THROW(require_links_alive(world()), Error);
}

TEST_F(Failure, OtherExceptionsStayWhatTheyAre) {
  EXPECT_THROW(abort_links_on_error(world(), [] { throw std::out_of_range("vector::at"); }), std::out_of_range);
  ASSERT_TRUE(links->reason);
  EXPECT_EQ(links->reason->code(), ExitCode::defect);
}

TEST_F(Failure, WithoutLinksThereIsNothingToGiveUp) {
  world().state()->context->device_links = nullptr;
  EXPECT_THROW(abort_links_on_error(world(), [] { throw Error(ExitCode::data, {.what = "bad"}); }), Error);
  EXPECT_NO_THROW(require_links_alive(world()));
}

}  // namespace
}  // namespace espalier
