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
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"relu", [](double x) { return x > 0 ? x : 0; }},
      {"relu_squared", [](double x) { return x > 0 ? x * x : 0; }},
  };
  return functions;
}

Values mapped(const std::string& name, Values values) {
  for (double& value : values)
    value = plain_functions().at(name)(value);
  return values;
}

TEST(Activation, every_function_without_a_gate_is_tested) {
  for (const std::string& name : activation_names())
    EXPECT_EQ(plain_functions().count(name), is_gated(name) ? 0U : 1U) << name;
  EXPECT_THROW(is_gated("sine"), std::logic_error);
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
