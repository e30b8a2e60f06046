// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "training/operation_pace.hpp"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Another program may hold a core for a while; a pace that is wrong is wrong by half or more.
constexpr double late = 0.04;

TEST(OperationPace, AnOperationLastsAsTold) {
  int calls = 0;
  const auto begin = Clock::now();
  OperationPace pace(0.1, 1);
  pace.part_done(0, [&] { ++calls; });
  EXPECT_GE(seconds_since(begin), 0.1);
  EXPECT_LT(seconds_since(begin), 0.1 + late);
  EXPECT_GE(calls, 3) << "messages stand still while it sleeps";
}

TEST(OperationPace, EachPartEndsInItsTurn) {
  const auto begin = Clock::now();
  OperationPace pace(0.1, 2);
  sleep(0.02);  // real work is part of it
  pace.part_done(0);
  EXPECT_GE(seconds_since(begin), 0.05);
  EXPECT_LT(seconds_since(begin), 0.05 + late);
  pace.part_done(0);
  EXPECT_GE(seconds_since(begin), 0.1);
  EXPECT_LT(seconds_since(begin), 0.1 + late);
}

TEST(OperationPace, CommunicationComesOnTop) {
  const auto begin = Clock::now();
  OperationPace pace(0.05, 1);
  sleep(0.06);
  pace.part_done(0.06);
  EXPECT_GE(seconds_since(begin), 0.11);
  EXPECT_LT(seconds_since(begin), 0.11 + late) << "once";
}

TEST(OperationPace, ASlowRankTakesItsFactorOfWhatItWorked) {
  const auto begin = Clock::now();
  OperationPace pace(0, 1, 3);
  sleep(0.03);
  pace.part_done(0);
  EXPECT_GE(seconds_since(begin), 0.09);
  EXPECT_LT(seconds_since(begin), 0.09 + 3 * late);
}

TEST(OperationPace, WithoutATimeNothingIsAdded) {
  const auto begin = Clock::now();
  int calls = 0;
  OperationPace pace(0, 1);
  pace.part_done(0, [&] { ++calls; });
  EXPECT_LT(seconds_since(begin), late);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace espalier
