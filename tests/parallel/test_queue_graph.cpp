// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/queue_graph.hpp"
#include "tests/support/tensors.hpp"

namespace espalier {
namespace {

using namespace test;

struct AddTo {
  Tensor<double, 1> x;
  double value;
  KOKKOS_FUNCTION void operator()(int i) const { x(i) += value; }
};

void add(const ExecSpace& queue, const Tensor<double, 1>& x, double value) {
  Kokkos::parallel_for(Kokkos::RangePolicy<ExecSpace>(queue, 0, static_cast<int>(x.extent(0))), AddTo{x, value});
}

TEST(QueueGraph, DoesItsWorkEachTime) {
  const ExecSpace queue;
  const Tensor<double, 1> x = on_device<double>(Values(3, 0), 3);
  QueueGraph graph;
  for (int i = 1; i <= 4; ++i) {
    graph.run(queue, [&] {
      add(queue, x, 1);
      add(queue, x, 10);
    });
    EXPECT_EQ(on_host(x), Values(3, 11 * i));
  }
}

// A call between kernels finds done what was started before it, and what it starts itself is done before what follows.
TEST(QueueGraph, CallsComeBetweenKernelsEachTime) {
  const ExecSpace queue;
  const Tensor<double, 1> x = on_device<double>(Values(3, 0), 3);
  Values seen;
  QueueGraph graph;
  for (int i = 0; i < 4; ++i) {
    const auto call = [&] {
      seen.push_back(on_host(x).front());
      add(queue, x, static_cast<double>(seen.size()));  // another value each time, which no recording knows
    };
    graph.run(queue, [&] {
      call_each_time(call);
      add(queue, x, 100);
      call_each_time(call);
      call_each_time(call);
      add(queue, x, 1000);
    });
  }
  // Each run adds 1100 and three numbers that count on.
  EXPECT_EQ(seen, (Values{0, 101, 103, 1106, 1210, 1215, 2221, 2328, 2336, 3345, 3455, 3466}));
  EXPECT_EQ(on_host(x), Values(3, 4 * 1100 + 78));
}

TEST(QueueGraph, ACallWithinACallIsMadeEachTime) {
  const ExecSpace queue;
  const Tensor<double, 1> x = on_device<double>(Values(3, 0), 3);
  QueueGraph graph;
  for (int i = 1; i <= 3; ++i) {
    graph.run(queue, [&] {
      add(queue, x, 1);
      call_each_time([&] { call_each_time([&] { add(queue, x, 10); }); });
    });
    EXPECT_EQ(on_host(x), Values(3, 11 * i));
  }
}

TEST(QueueGraph, ACallThatFailsLeavesTheQueueUsable) {
  const ExecSpace queue;
  const Tensor<double, 1> x = on_device<double>(Values(3, 0), 3);
  bool fails = false;
  QueueGraph graph;
  const auto run = [&] {
    graph.run(queue, [&] {
      add(queue, x, 1);
      call_each_time([&] {
        if (fails)
          throw std::runtime_error("no message");
      });
      add(queue, x, 10);
    });
  };
  run();
  fails = true;
  EXPECT_THROW(run(), std::runtime_error);  // while it is recorded
  fails = false;
  EXPECT_EQ(on_host(x), Values(3, 12));
  run();
  run();
  EXPECT_EQ(on_host(x), Values(3, 34));
  fails = true;
  EXPECT_THROW(run(), std::runtime_error);  // while it runs again
  fails = false;
  run();
  EXPECT_EQ(on_host(x), Values(3, 46));
}

}  // namespace
}  // namespace espalier
