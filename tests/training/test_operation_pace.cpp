// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/stopwatch.hpp"
#include "training/rehearsal/step_pace.hpp"

namespace espalier {
namespace {

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Another program may hold a core for a while; a pace that is wrong is wrong by half or more.
constexpr double late = 0.04;

TEST(OperationPace, AnOperationLastsAsTold) {
  int calls = 0;
  const Stopwatch stopwatch;
  OperationPace pace(0.1, 1);
  pace.part_done(0, [&] { ++calls; });
  EXPECT_GE(stopwatch.seconds(), 0.1);
  EXPECT_LT(stopwatch.seconds(), 0.1 + late);
  EXPECT_GE(calls, 3) << "messages stand still while it sleeps";
}

TEST(OperationPace, EachPartEndsInItsTurn) {
  const Stopwatch stopwatch;
  OperationPace pace(0.1, 2);
  sleep(0.02);  // real work is part of it
  pace.part_done(0);
  EXPECT_GE(stopwatch.seconds(), 0.05);
  EXPECT_LT(stopwatch.seconds(), 0.05 + late);
  pace.part_done(0);
  EXPECT_GE(stopwatch.seconds(), 0.1);
  EXPECT_LT(stopwatch.seconds(), 0.1 + late);
}

TEST(OperationPace, CommunicationComesOnTop) {
  const Stopwatch stopwatch;
  OperationPace pace(0.05, 1);
  sleep(0.06);
  pace.part_done(0.06);
  EXPECT_GE(stopwatch.seconds(), 0.11);
  EXPECT_LT(stopwatch.seconds(), 0.11 + late) << "once";
}

TEST(OperationPace, ASlowRankTakesItsFactorOfWhatItWorked) {
  const Stopwatch stopwatch;
  OperationPace pace(0, 1, 3);
  sleep(0.03);
  pace.part_done(0);
  EXPECT_GE(stopwatch.seconds(), 0.09);
  EXPECT_LT(stopwatch.seconds(), 0.09 + 3 * late);
}

TEST(OperationPace, WithoutATimeNothingIsAdded) {
  const Stopwatch stopwatch;
  int calls = 0;
  OperationPace pace(0, 1);
  pace.part_done(0, [&] { ++calls; });
  EXPECT_LT(stopwatch.seconds(), late);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace espalier
