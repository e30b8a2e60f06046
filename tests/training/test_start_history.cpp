// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Which starts the record of a run comes from, and what each has changed.
#include <gtest/gtest.h>

#include "tests/io/support.hpp"
#include "training/loop/restarts.hpp"

namespace espalier::test {
namespace {

class StartHistory : public testing::Test {
 protected:
  // Signs a start on that takes `first_step`.
  void start(Index first_step, double rate) {
    const std::string config = "[optimizer]\nlearning_rate = " + std::to_string(rate) + "\n";
    record_.details.update(details_of(history_with(record_, directory_.path(), config, first_step)));
    write_file_atomically(directory_ / "config.toml", config);
  }
  nlohmann::json history() const { return record_.details.at("history"); }

  TemporaryDirectory directory_;
  RunRecord record_;
};

TEST_F(StartHistory, NamesWhatEachStartHasChanged) {
  start(1, 3);
  start(11, 3);
  start(21, 1);
  ASSERT_EQ(history().size(), 3U);
  EXPECT_TRUE(history()[1].at("changes").empty());
  EXPECT_EQ(history()[2].at("first_step"), 21);
  EXPECT_EQ(history()[2].at("changes"), nlohmann::json({"optimizer.learning_rate: 1 (was 3)"}));
}

// Their steps are taken again: what they have changed stays changed.
TEST_F(StartHistory, ForgetsStartsOfWhichNothingIsLeft) {
  start(1, 3);
  start(11, 2);
  start(11, 2);
  ASSERT_EQ(history().size(), 2U);
  EXPECT_EQ(history()[1].at("changes").size(), 1U);
  start(6, 2);
  ASSERT_EQ(history().size(), 2U);
  EXPECT_EQ(history()[1].at("first_step"), 6);
  EXPECT_EQ(history()[1].at("changes").size(), 1U);
  start(1, 2);
  ASSERT_EQ(history().size(), 1U);
  EXPECT_TRUE(history()[0].at("changes").empty());
}

TEST_F(StartHistory, BeginsAnewWhereTheRecordIsOfAnotherHand) {
  for (const char* const forged : {"7", "[7]", "[{}]", R"([{"first_step": "x", "changes": []}])",
                                   R"([{"first_step": 1, "changes": 7}])", "{\"a\": 1}"}) {
    record_.details["history"] = nlohmann::json::parse(forged);
    start(11, 3);
    EXPECT_EQ(history().size(), 1U) << forged;
  }
  record_.details = nlohmann::json::object();
  start(11, 3);
  EXPECT_EQ(history().size(), 1U);
}

TEST_F(StartHistory, KeepsTheNewestHundred) {
  for (Index i = 0; i < 150; ++i)
    start(1 + i, 3);
  EXPECT_EQ(history().size(), 100U);
  EXPECT_EQ(history().back().at("first_step"), 150);
}

}  // namespace
}  // namespace espalier::test
