// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gelu.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

TEST(Gelu, forward_is_that_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& s) {
    const Values x = random_values("x", s.rows() * s.channels(), 4);
    const auto y = undefined<T>(s.rows(), s.channels());
    gelu_forward<T>(ExecSpace(), y, on_device<T>(x, s.rows(), s.channels()));
    EXPECT_TRUE(allclose(on_host(y), reference::gelu(rounded<T>(x)), tolerance<T>, {s.rows(), s.channels()}));
  });
}

TEST(Gelu, gradient_is_that_of_finite_differences) {
  for (const OpShape& s : op_shapes()) {
    SCOPED_TRACE(to_text(s));
    const Values x = random_values("x", s.rows() * s.channels(), 5);
    const Values dy = random_values("dy", s.rows() * s.channels());
    const auto dx = undefined<double>(s.rows(), s.channels());
    const auto x_device = on_device<double>(x, s.rows(), s.channels());
    gelu_backward<double>(ExecSpace(), dx, on_device<double>(dy, s.rows(), s.channels()), x_device);
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dy, reference::gelu(v)); }, x, on_host(dx)));

    const auto in_place = on_device<float>(dy, s.rows(), s.channels());  // dx may be dy
    gelu_backward<float>(ExecSpace(), in_place, in_place, on_device<float>(x, s.rows(), s.channels()));
    EXPECT_TRUE(allclose(on_host(in_place), on_host(dx), 1e-5, {s.rows(), s.channels()}));
  }
}

TEST(Gelu, stays_finite_far_out_and_passes_nan_on) {
  const Values x = {-1e4, -200, -30, 0, 30, 200, 1e4, std::nan("")};
  const Values y_wanted = {0, 0, 0, 0, 30, 200, 1e4, std::nan("")};
  const Values slope_wanted = {0, 0, 0, 0.5, 1, 1, 1, std::nan("")};
  const auto columns = static_cast<Index>(x.size());
  const auto y = undefined<float>(Index{1}, columns);
  const auto dx = undefined<float>(Index{1}, columns);
  gelu_forward<float>(ExecSpace(), y, on_device<float>(x, 1, columns));
  gelu_backward<float>(ExecSpace(), dx, on_device<float>(Values(x.size(), 1.0), 1, columns),
                       on_device<float>(x, 1, columns));
  EXPECT_TRUE(allclose(on_host(y), y_wanted, 1e-6));
  EXPECT_TRUE(allclose(on_host(dx), slope_wanted, 1e-6));
}

}  // namespace
