// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// One rank can only send to itself, but it is NCCL that carries it, behind kernels and under the eyes of the watchdog.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/stopwatch.hpp"
#include "parallel/communicator.hpp"
#include "parallel/device.hpp"
#include "parallel/device_link.hpp"
#include "parallel/device_queue.hpp"
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
void keep_busy_until(const ExecSpace& queue, const volatile int* released) {
  Kokkos::parallel_for(
      "espalier::parallel::test::keep_busy", Kokkos::RangePolicy<ExecSpace>(queue, 0, 1), KOKKOS_LAMBDA(const int) {
        while (*released == 0) {
        }
      });
}

// A queue whose kernel does not end before let_go().
class HeldQueue {
 public:
  HeldQueue() { keep_busy_until(queue_, release_.data()); }
  ~HeldQueue() { let_go(); }
  operator const ExecSpace&() const { return queue_; }
  void let_go() const {
    *const_cast<volatile int*>(release_.data()) = 1;
    compat::fence(queue_, "what was held up goes away");
  }

 private:
  ExecSpace queue_ = make_queue();
  Kokkos::View<int, compat::PinnedHostSpace> release_{"espalier::other::release"};
};

// A kernel before and one after, in the same queue: nobody waits, and all is in order.
TEST(NcclLink, CarriesWhatKernelsBeforeItMade) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  EXPECT_EQ(factory->device_bytes(), 0u);
  const auto link = factory->connect(world(), {world().rank()}, "self", {});
  EXPECT_LT(factory->device_bytes(), device_memory().total_bytes);
  const ExecSpace queue = make_queue();
  constexpr Index count = 1 << 20;
  const Tensor<float, 1> out("espalier::other::out", count);
  const Tensor<float, 1> in("espalier::other::in", count);
  for (int round = 0; round < 100; ++round) {
    Kokkos::deep_copy(queue, out, static_cast<float>(round));
    link->exchange(queue, to_ourselves(out, in), "a round");
    if (round < 99)
      Kokkos::deep_copy(queue, in, -1.0F);
  }
  compat::fence(queue, "the test reads the values");
  EXPECT_TRUE(same_bits(to_vector(in), std::vector<float>(static_cast<std::size_t>(count), 99.0F)));
  EXPECT_NO_THROW(factory->require_alive());
}

TEST(NcclLink, WhatIsNotDoneInTimeIsCalledOff) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  // Whichever is called off first, its queue is held up; and one that is idle.
  auto link = factory->connect(world(), {world().rank()}, "self", {});
  auto other = factory->connect(world(), {world().rank()}, "other", {});
  auto idle = factory->connect(world(), {world().rank()}, "idle", {.only_sender = world().rank(), .max_blocks = 1});
  world().set_deadline(1);  // NCCL may take longer than that to connect
  const HeldQueue queue;
  const Tensor<float, 1> out("espalier::other::out", 16);
  const Tensor<float, 1> in("espalier::other::in", 16);
  link->exchange(queue, to_ourselves(out, in), "a group that is held up");
  world().set_deadline(60);
  other->exchange(queue, to_ourselves(out, in), "another behind it");
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
  EXPECT_NE(report.find("for a group that is held up, in vain"), std::string::npos) << report;
  EXPECT_THROW(link->exchange(queue, to_ourselves(out, in), "the next"), Error);
  queue.let_go();
  for (auto* one : {&link, &other, &idle})
    one->reset();
}

// What a rank does that failed for a reason of its own: nothing that it has queued keeps the device busy.
TEST(NcclLink, WhoFailsLeavesNothingBehind) {
  const auto factory = make_nccl_factory();
  ASSERT_NE(factory, nullptr);
  auto link = factory->connect(world(), {world().rank()}, "self", {});
  const HeldQueue queue;
  const Tensor<float, 1> out("espalier::other::out", 16);
  const Tensor<float, 1> in("espalier::other::in", 16);
  link->exchange(queue, to_ourselves(out, in), "a group that is held up");
  factory->abandon(Error(ExitCode::memory, {.what = "the memory is full"}));
  queue.let_go();
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
