// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/ops/activation.hpp"
#include "core/ops/activation_names.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

using Function = double (*)(double);

// Each function of the table in one line of plain arithmetic.
const std::map<std::string, Function>& plain_functions() {
  static const std::map<std::string, Function> functions = {
      {"gelu", [](double x) { return reference::gelu({x})[0]; }},
      {"gelu_erf", [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"relu", [](double x) { return x > 0 ? x : 0; }},
      {"relu_squared", [](double x) { return x > 0 ? x * x : 0; }},
  };
  return functions;
}

// What stands before the multiplication, for each name with a gate.
const std::map<std::string, Function>& plain_gates() {
  static const std::map<std::string, Function> functions = {
      {"swiglu", plain_functions().at("silu")},
      {"geglu", plain_functions().at("gelu")},
  };
  return functions;
}

Values mapped(const std::string& name, Values values) {
  for (double& value : values)
    value = plain_functions().at(name)(value);
  return values;
}

TEST(Activation, every_function_is_tested) {
  for (const std::string& name : activation_names())
    EXPECT_EQ((is_gated(name) ? plain_gates() : plain_functions()).count(name), 1U) << name;
  EXPECT_THROW(is_gated("sine"), std::logic_error);
  const auto two = undefined<float>(Index{1}, Index{2}), one = undefined<float>(Index{1}, Index{1});
  EXPECT_THROW(activation_forward<float>(ExecSpace(), "swiglu", one, one), std::logic_error);
  EXPECT_THROW(activation_backward<float>(ExecSpace(), "swiglu", one, one, one), std::logic_error);
  EXPECT_THROW(activation_forward<float>(ExecSpace(), "gelu", one, two), std::logic_error);
  EXPECT_THROW(activation_backward<float>(ExecSpace(), "gelu", two, one, two), std::logic_error);
}

TEST(Activation, forward_is_that_of_plain_functions) {
  for (const auto& [name, function] : plain_functions())
    for_each_shape_and_type([&, &called = name]<class T>(const OpShape& s) {
      const Values x = random_values("x", s.rows() * s.channels(), 4);
      const auto y = undefined<T>(s.rows(), s.channels());
      activation_forward<T>(ExecSpace(), called, y, on_device<T>(x, s.rows(), s.channels()));
      EXPECT_TRUE(allclose(on_host(y), mapped(called, rounded<T>(x)), tolerance<T>, {s.rows(), s.channels()}))
          << called;
    });
}

TEST(Activation, gradient_is_that_of_finite_differences) {
  for (const auto& [name, function] : plain_functions())
    for (const OpShape& s : op_shapes()) {
      SCOPED_TRACE(name + " " + to_text(s));
      const Values x = random_values("x", s.rows() * s.channels(), 5);
      const Values dy = random_values("dy", s.rows() * s.channels());
      const auto dx = undefined<double>(s.rows(), s.channels());
      const auto x_device = on_device<double>(x, s.rows(), s.channels());
      activation_backward<double>(ExecSpace(), name, dx, on_device<double>(dy, s.rows(), s.channels()), x_device);
      EXPECT_TRUE(
          gradient_check([&, &called = name](const Values& v) { return dot(dy, mapped(called, v)); }, x, on_host(dx)));

      const auto in_place = on_device<float>(dy, s.rows(), s.channels());  // dx may be dy
      activation_backward<float>(ExecSpace(), name, in_place, in_place, on_device<float>(x, s.rows(), s.channels()));
      EXPECT_TRUE(allclose(on_host(in_place), on_host(dx), 1e-5, {s.rows(), s.channels()}));
    }
}

TEST(Activation, gated_forward_is_that_of_plain_loops) {
  for (const auto& [name, function] : plain_gates())
    for_each_shape_and_type([&, &called = name, &plain = function]<class T>(const OpShape& s) {
      const Index width = s.channels();
      const Values x = random_values("x", s.rows() * 2 * width, 4);
      const auto y = undefined<T>(s.rows(), width);
      activation_forward<T>(ExecSpace(), called, y, on_device<T>(x, s.rows(), 2 * width));
      EXPECT_TRUE(allclose(on_host(y), reference::gated(plain, rounded<T>(x), width), tolerance<T>, {s.rows(), width}))
          << called;
    });
}

// dy beside what the gradients overwrite: in the left or the right half of their rows.
template <class T>
Values gated_gradient_in_place(const std::string& name, const Values& dy, const Values& x, Index width, bool left) {
  const Index rows = static_cast<Index>(dy.size()) / width;
  Values both(2 * dy.size(), std::nan(""));
  for (Index n = 0; n < rows; ++n)
    for (Index c = 0; c < width; ++c)
      both[reference::at(n, (left ? 0 : width) + c, 2 * width)] = dy[reference::at(n, c, width)];
  const auto dx = on_device<T>(both, rows, 2 * width);
  const Tensor<T, 2> half =
      Kokkos::subview(dx, Kokkos::ALL, std::pair<Index, Index>(left ? 0 : width, left ? width : 2 * width));
  activation_backward<T>(ExecSpace(), name, dx, half, on_device<T>(x, rows, 2 * width));
  return on_host(dx);
}

TEST(Activation, gated_gradient_is_that_of_finite_differences) {
  for (const auto& [name, function] : plain_gates())
    for (const OpShape& s : op_shapes()) {
      SCOPED_TRACE(name + " " + to_text(s));
      const Index rows = s.rows(), width = s.channels();
      const Values x = random_values("x", rows * 2 * width, 5);
      const Values dy = random_values("dy", rows * width);
      const auto dx = undefined<double>(rows, 2 * width);
      activation_backward<double>(ExecSpace(), name, dx, on_device<double>(dy, rows, width),
                                  on_device<double>(x, rows, 2 * width));
      EXPECT_TRUE(
          gradient_check([&, &plain = function](const Values& v) { return dot(dy, reference::gated(plain, v, width)); },
                         x, on_host(dx), 24, 1e-8, {rows, 2 * width}));
      for (const bool left : {true, false})
        EXPECT_TRUE(
            allclose(gated_gradient_in_place<float>(name, dy, x, width, left), on_host(dx), 1e-5, {rows, 2 * width}));
      const auto over_x = on_device<double>(x, rows, 2 * width);
      activation_backward<double>(ExecSpace(), name, over_x, on_device<double>(dy, rows, width), over_x);
      EXPECT_EQ(fingerprint(over_x), fingerprint(dx));
    }
}

TEST(Activation, gated_gradients_of_16_bits_are_those_of_fp64) {
  for (const auto& [name, function] : plain_gates())
    for_each_shape_and_type([&, &called = name]<class T>(const OpShape& s) {
      const Index width = s.channels();
      const Values x = rounded<T>(random_values("x", s.rows() * 2 * width, 4));
      const Values dy = rounded<T>(random_values("dy", s.rows() * width));
      EXPECT_TRUE(allclose(gated_gradient_in_place<T>(called, dy, x, width, true),
                           gated_gradient_in_place<double>(called, dy, x, width, true), tolerance<T>,
                           {s.rows(), 2 * width}));
    });
}

TEST(Activation, stays_finite_far_out_and_passes_nan_on) {
  const Values x = {-1e4, -200, -30, 0, 30, 200, 1e4, std::nan("")};
  const auto columns = static_cast<Index>(x.size());
  for (const auto& [name, function] : plain_functions()) {
    const auto y = undefined<float>(Index{1}, columns);
    const auto dx = undefined<float>(Index{1}, columns);
    activation_forward<float>(ExecSpace(), name, y, on_device<float>(x, 1, columns));
    activation_backward<float>(ExecSpace(), name, dx, on_device<float>(Values(x.size(), 1.0), 1, columns),
                               on_device<float>(x, 1, columns));
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isfinite(on_host(y)[i]), std::isfinite(x[i])) << name << " of " << x[i];
      EXPECT_EQ(std::isfinite(on_host(dx)[i]), std::isfinite(x[i])) << name << " of " << x[i];
    }
  }
  const auto y = undefined<float>(Index{1}, columns);
  const auto dx = undefined<float>(Index{1}, columns);
  activation_forward<float>(ExecSpace(), "gelu", y, on_device<float>(x, 1, columns));
  activation_backward<float>(ExecSpace(), "gelu", dx, on_device<float>(Values(x.size(), 1.0), 1, columns),
                             on_device<float>(x, 1, columns));
  EXPECT_TRUE(allclose(on_host(y), Values{0, 0, 0, 0, 30, 200, 1e4, std::nan("")}, 1e-6));
  EXPECT_TRUE(allclose(on_host(dx), Values{0, 0, 0, 0.5, 1, 1, 1, std::nan("")}, 1e-6));
}

}  // namespace
