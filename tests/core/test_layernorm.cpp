// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/ops/layernorm.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct LayernormCase {
  Values x, weight, bias, dy, dx_before;
  LayernormCase(const OpShape& s)
      : x(random_values("x", s.rows() * s.channels(), 3)),
        weight(random_values("weight", s.channels())),
        bias(random_values("bias", s.channels())),
        dy(random_values("dy", s.rows() * s.channels())),
        dx_before(random_values("dx", s.rows() * s.channels())) {}
};

struct Gradients {
  Values dx, dweight, dbias;
};

Values minus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] -= b[i];
  return a;
}

template <class T>
Gradients backward(const LayernormCase& c, Index rows, Index channels) {
  const ExecSpace exec;
  const auto x = on_device<T>(c.x, rows, channels);
  const auto dy = on_device<T>(c.dy, rows, channels);
  const auto weight = on_device<T>(c.weight, channels);
  const auto y = undefined<T>(rows, channels);
  const auto mean = undefined<State<T>>(rows);
  const auto rstd = undefined<State<T>>(rows);
  layernorm_forward<T>(exec, y, mean, rstd, x, weight, on_device<T>(c.bias, channels));
  const auto dstream = on_device<T>(c.dx_before, rows, channels), dx = undefined<T>(rows, channels);
  const auto dweight = on_device<State<T>>(Values(static_cast<std::size_t>(channels), 2.0), channels);
  const auto dbias = on_device<State<T>>(Values(static_cast<std::size_t>(channels), 3.0), channels);
  layernorm_backward_input<T>(exec, dx, dstream, dy, x, mean, rstd, weight);
  layernorm_backward_input<T>(exec, dstream, dstream, dy, x, mean, rstd, weight);
  EXPECT_EQ(fingerprint(dstream), fingerprint(dx)) << "in place";
  layernorm_backward_weight<T>(exec, dweight, dbias, dy, x, mean, rstd, 1);
  const Values nothing(static_cast<std::size_t>(channels), NAN);
  const auto alone = on_device<State<T>>(nothing, channels), bias_alone = on_device<State<T>>(nothing, channels);
  layernorm_backward_weight<T>(exec, alone, bias_alone, dy, x, mean, rstd, 0);
  const auto expect_sums_without_start = [&] {
    const auto size = static_cast<std::size_t>(channels);
    EXPECT_TRUE(allclose(on_host(alone), minus(on_host(dweight), Values(size, 2.0)), tolerance<State<T>>));
    EXPECT_TRUE(allclose(on_host(bias_alone), minus(on_host(dbias), Values(size, 3.0)), tolerance<State<T>>));
  };
  expect_sums_without_start();
  for (const Index partial_rows : {Index{1}, std::min<Index>(3, rows), rows}) {
    if (layernorm_partial_rows(rows, channels) == 0)
      continue;
    SCOPED_TRACE(fmt::format("{} rows of partial sums", partial_rows));
    const auto again = on_device<T>(c.dx_before, rows, channels);
    const auto partial = undefined<State<T>>(partial_rows, 2 * channels);
    layernorm_backward_input<T>(exec, again, again, dy, x, mean, rstd, weight, partial);
    layernorm_backward_weight<T>(exec, alone, bias_alone, undefined<T>(rows, channels), x, mean, rstd, 0, partial);
    EXPECT_TRUE(allclose(on_host(again), on_host(dx), tolerance<T>, {rows, channels}));
    expect_sums_without_start();
  }
  return {on_host(dx), on_host(dweight), on_host(dbias)};
}

TEST(Layernorm, forward_is_that_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    const LayernormCase c(s);
    const Index rows = s.rows(), channels = s.channels();
    const auto y = undefined<T>(rows, channels);
    layernorm_forward<T>(ExecSpace(), y, undefined<State<T>>(rows), undefined<State<T>>(rows),
                         on_device<T>(c.x, rows, channels), on_device<T>(c.weight, channels),
                         on_device<T>(c.bias, channels));
    EXPECT_TRUE(allclose(on_host(y), reference::layernorm(rounded<T>(c.x), rounded<T>(c.weight), rounded<T>(c.bias)),
                         tolerance<T>, {rows, channels}));
  });
}

TEST(Layernorm, gradients_are_those_of_finite_differences) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const LayernormCase c(s);
    const Gradients g = backward<double>(c, s.rows(), s.channels());
    const Values twos(c.weight.size(), 2.0), threes(c.weight.size(), 3.0);
    EXPECT_TRUE(gradient_check([&](const Values& x) { return dot(c.dy, reference::layernorm(x, c.weight, c.bias)); },
                               c.x, minus(g.dx, c.dx_before), 24, 1e-7, {s.rows(), s.channels()}));
    EXPECT_TRUE(gradient_check([&](const Values& w) { return dot(c.dy, reference::layernorm(c.x, w, c.bias)); },
                               c.weight, minus(g.dweight, twos)));
    EXPECT_TRUE(gradient_check([&](const Values& b) { return dot(c.dy, reference::layernorm(c.x, c.weight, b)); },
                               c.bias, minus(g.dbias, threes)));
  }
}

TEST(Layernorm, gradients_of_all_types_are_those_of_fp64) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    LayernormCase c(s);
    for (Values* const values : {&c.x, &c.weight, &c.bias, &c.dy, &c.dx_before})
      *values = rounded<T>(*values);
    const Gradients actual = backward<T>(c, s.rows(), s.channels());
    const Gradients wanted = backward<double>(c, s.rows(), s.channels());
    EXPECT_TRUE(allclose(actual.dx, wanted.dx, tolerance<T>, {s.rows(), s.channels()}));
    // Sums of products in the state type: nothing is rounded to 16 bits.
    EXPECT_TRUE(allclose(actual.dweight, wanted.dweight, 1e-5));
    EXPECT_TRUE(allclose(actual.dbias, wanted.dbias, 1e-5));
  });
}

TEST(Layernorm, rows_of_more_than_a_warp_are_summed_as_a_whole) {
  const LayernormCase c({1, 7, 3, 128, 1});
  const Gradients actual = backward<float>(c, 7, 384);
  const Gradients wanted = backward<double>(c, 7, 384);
  EXPECT_TRUE(allclose(actual.dx, wanted.dx, 1e-5, {7, 384}));
  EXPECT_TRUE(allclose(actual.dweight, wanted.dweight, 1e-5));
}

TEST(Layernorm, a_large_mean_does_not_eat_the_variance) {
  const Index channels = 64;
  Values x = random_values("x", channels);
  for (double& value : x)
    value += 1000;
  const Values ones(x.size(), 1.0), zeros(x.size(), 0.0);
  const auto y = undefined<float>(Index{1}, channels);
  layernorm_forward<float>(ExecSpace(), y, undefined<float>(1), undefined<float>(1), on_device<float>(x, 1, channels),
                           on_device<float>(ones, channels), on_device<float>(zeros, channels));
  EXPECT_TRUE(allclose(on_host(y), reference::layernorm(rounded<float>(x), ones, zeros), 1e-3));
}

}  // namespace
