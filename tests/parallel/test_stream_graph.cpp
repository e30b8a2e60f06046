// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "core/tensor.hpp"
#include "parallel/device/stream_graph.hpp"
#include "tests/support/tensors.hpp"

namespace espalier {
namespace {

using namespace test;

// What was done, in device memory, the latest first. It is written by copies alone: the CUDA mock (docs/portability.md)
// carries them out, but runs no kernels.
class Journal {
 public:
  void add(const ExecSpace& stream, std::size_t number) const {
    Kokkos::deep_copy(stream, before_, entries_);
    Kokkos::deep_copy(stream, part(entries_, 1, length), part(before_, 0, length - 1));
    Kokkos::deep_copy(stream, part(entries_, 0, 1), part(numbers_, number, number + 1));
  }

  Values latest(std::size_t count) const {
    const Values all = on_host(entries_);
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  static constexpr std::size_t length = 16;
  static Tensor<double, 1> part(const Tensor<double, 1>& x, std::size_t first, std::size_t end) {
    return Kokkos::subview(x, std::pair(first, end));
  }

  Tensor<double, 1> entries_ = on_device<double>(Values(length, 0), length);
  Tensor<double, 1> before_ = on_device<double>(Values(length, 0), length);
  Tensor<double, 1> numbers_ = on_device<double>(Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 13);
};

TEST(StreamGraph, DoesItsWorkEachTime) {
  const ExecSpace stream;
  const Journal journal;
  StreamGraph graph;
  Values wanted;
  for (int i = 0; i < 4; ++i) {
    graph.run(stream, [&] {
      journal.add(stream, 1);
      journal.add(stream, 2);
    });
    wanted.insert(wanted.end(), {2, 1});
    EXPECT_EQ(journal.latest(wanted.size()), wanted);
  }
  EXPECT_EQ(journal.latest(9).back(), 0);
}

// A call between other work finds done what was started before it, and what it starts itself is done before what
// follows.
TEST(StreamGraph, CallsComeBetweenOtherWorkEachTime) {
  const ExecSpace stream;
  const Journal journal;
  std::size_t calls = 0;
  Values seen;
  StreamGraph graph;
  for (int i = 0; i < 3; ++i) {
    const auto call = [&] {
      seen.push_back(journal.latest(1).front());
      journal.add(stream, ++calls);  // another number each time, which no recording knows
    };
    graph.run(stream, [&] {
      call_each_time(call);
      journal.add(stream, 11);
      call_each_time(call);
      call_each_time(call);
      journal.add(stream, 12);
    });
  }
  EXPECT_EQ(seen, (Values{0, 11, 2, 12, 11, 5, 12, 11, 8}));
  EXPECT_EQ(journal.latest(15), (Values{12, 9, 8, 11, 7, 12, 6, 5, 11, 4, 12, 3, 2, 11, 1}));
}

TEST(StreamGraph, ACallWithinACallIsMadeEachTime) {
  const ExecSpace stream;
  const Journal journal;
  StreamGraph graph;
  Values wanted;
  for (int i = 0; i < 3; ++i) {
    graph.run(stream, [&] {
      journal.add(stream, 1);
      call_each_time([&] { call_each_time([&] { journal.add(stream, 2); }); });
    });
    wanted.insert(wanted.end(), {2, 1});
    EXPECT_EQ(journal.latest(wanted.size()), wanted);
  }
  EXPECT_EQ(journal.latest(7).back(), 0);
}

TEST(StreamGraph, ACallThatFailsLeavesTheStreamUsable) {
  const ExecSpace stream;
  const Journal journal;
  bool fails = false;
  StreamGraph graph;
  const auto run = [&] {
    graph.run(stream, [&] {
      journal.add(stream, 1);
      call_each_time([&] {
        if (fails)
          throw std::runtime_error("no message");
      });
      journal.add(stream, 2);
    });
  };
  run();
  fails = true;
  EXPECT_THROW(run(), std::runtime_error);  // while it is recorded
  fails = false;
  EXPECT_EQ(journal.latest(4), (Values{1, 2, 1, 0}));
  run();
  run();
  EXPECT_EQ(journal.latest(5), (Values{2, 1, 2, 1, 1}));
  fails = true;
  EXPECT_THROW(run(), std::runtime_error);  // while it runs again
  fails = false;
  run();
  EXPECT_EQ(journal.latest(4), (Values{2, 1, 1, 2}));
}

}  // namespace
}  // namespace espalier
