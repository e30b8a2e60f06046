// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// One rank can only send to itself, but it is NCCL that carries it, behind kernels and under the eyes of the watchdog.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/stopwatch.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/device_link.hpp"
#include "parallel/device/device.hpp"
#include "parallel/device/device_stream.hpp"
#include "tests/parallel/contributions.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using namespace test;

std::vector<DeviceMessage> to_ourselves(const Tensor<float, 1>& out, const Tensor<float, 1>& in) {
  const std::size_t bytes = out.size() * sizeof(float);
  return {{out.data(), bytes, world().rank(), false}, {in.data(), bytes, world().rank(), true}};
}

// nvcc wants such a function outside of a class.
void keep_busy_until(const ExecSpace& stream, const volatile int* released) {
  Kokkos::parallel_for(
      "espalier::parallel::test::keep_busy", Kokkos::RangePolicy<ExecSpace>(stream, 0, 1), KOKKOS_LAMBDA(const int) {
        while (*released == 0) {
        }
      });
}

// A stream whose kernel does not end before let_go().
class HeldStream {
 public:
  HeldStream() { keep_busy_until(stream_, release_.data()); }
  ~HeldStream() { let_go(); }
  operator const ExecSpace&() const { return stream_; }
  void let_go() const {
    *const_cast<volatile int*>(release_.data()) = 1;
    compat::fence(stream_, "what was held up goes away");
  }

 private:
  ExecSpace stream_ = make_stream();
  Kokkos::View<int, compat::PinnedHostSpace> release_{"espalier::other::release"};
};

// A kernel before and one after, in the same stream: nobody waits, and all is in order.
TEST(NcclLink, CarriesWhatKernelsBeforeItMade) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  EXPECT_EQ(factory->device_bytes(), 0u);
  const auto link = factory->connect(world(), {world().rank()}, "self", {});
  EXPECT_LT(factory->device_bytes(), device_memory().total_bytes);
  const ExecSpace stream = make_stream();
  constexpr Index count = 1 << 20;
  const Tensor<float, 1> out("espalier::other::out", count);
  const Tensor<float, 1> in("espalier::other::in", count);
  for (int round = 0; round < 100; ++round) {
    Kokkos::deep_copy(stream, out, static_cast<float>(round));
    link->exchange(stream, to_ourselves(out, in), "a round");
    if (round < 99)
      Kokkos::deep_copy(stream, in, -1.0F);
  }
  compat::fence(stream, "the test reads the values");
  EXPECT_TRUE(same_bits(to_vector(in), std::vector<float>(static_cast<std::size_t>(count), 99.0F)));
  EXPECT_NO_THROW(factory->require_alive());
}

TEST(NcclLink, WhatIsNotDoneInTimeIsCalledOff) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  // Whichever is aborted first, its stream is held up; and one that is idle.
  auto link = factory->connect(world(), {world().rank()}, "self", {});
  auto other = factory->connect(world(), {world().rank()}, "other", {});
  auto idle = factory->connect(world(), {world().rank()}, "idle", {.only_sender = world().rank(), .max_blocks = 1});
  world().set_deadline(1);  // NCCL may take longer than that to connect
  const HeldStream stream;
  const Tensor<float, 1> out("espalier::other::out", 16);
  const Tensor<float, 1> in("espalier::other::in", 16);
  link->exchange(stream, to_ourselves(out, in), "a group that is held up");
  world().set_deadline(60);
  other->exchange(stream, to_ourselves(out, in), "another behind it");
  std::string report;
  const Stopwatch stopwatch;
  while (report.empty() && stopwatch.seconds() < 10) {
    try {
      factory->require_alive();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::communication);
      report = error.what();
    }
  }
  EXPECT_NE(report.find("for a group that is held up without success"), std::string::npos) << report;
  EXPECT_THROW(link->exchange(stream, to_ourselves(out, in), "the next"), Error);
  stream.let_go();
  for (auto* one : {&link, &other, &idle})
    one->reset();
}

// What a rank does that failed for a reason of its own: nothing that it has queued keeps the device busy.
TEST(NcclLink, WhoFailsLeavesNothingBehind) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  auto link = factory->connect(world(), {world().rank()}, "self", {});
  const HeldStream stream;
  const Tensor<float, 1> out("espalier::other::out", 16);
  const Tensor<float, 1> in("espalier::other::in", 16);
  link->exchange(stream, to_ourselves(out, in), "a group that is held up");
  factory->abort(Error(ExitCode::memory, {.what = "the memory is full"}));
  stream.let_go();
  try {
    factory->require_alive();
    ADD_FAILURE() << "is alive";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
  }
  link = nullptr;
}

}  // namespace
}  // namespace espalier
