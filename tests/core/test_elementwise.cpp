// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/matmul_operands.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

// The passes around a linear layer, and the layer made of them: y = x W^T + bias. N rows, K inputs, F outputs.
namespace {

struct LinearShape {
  Index rows, inner, width;
  explicit LinearShape(const OpShape& s) : rows(s.rows()), inner(s.channels()), width(s.vocabulary) {}
};

TEST(Linear, forward_is_that_of_plain_loops) {
  for_each_shape_and_type([]<class T>(const OpShape& shape) {
    const LinearShape s(shape);
    const Values bias = random_values("bias", s.width), residual = random_values("residual", s.rows * s.width);
    const auto bias_device = on_device<T>(bias, s.width);
    Values x, weight, wanted;
    Tensor<T, 2> x_device, weight_device;  // (rows, inner), (width, inner)

    const MatmulLibrary before = matmul_library();
    for (const MatmulLibrary library : matmul_libraries()) {
      SCOPED_TRACE(to_string(library));
      set_matmul_library(library);
      x = matmul_operands<T>(random_values("x", s.rows * s.inner));
      weight = matmul_operands<T>(random_values("weight", s.width * s.inner));
      wanted = reference::linear(x, weight, rounded<T>(bias));
      x_device = on_device<T>(x, s.rows, s.inner);
      weight_device = on_device<T>(weight, s.width, s.inner);
      const auto y = undefined<T>(s.rows, s.width);
      linear_forward<T>(ExecSpace(), y, x_device, weight_device, bias_device);
      EXPECT_TRUE(allclose(on_host(y), wanted, tolerance_of_sum<T>(library), {s.rows, s.width}));
    }
    set_matmul_library(before);

    const auto with_residual = undefined<T>(s.rows, s.width);
    matmul<T>(ExecSpace(), with_residual, Transpose::no, x_device, Transpose::yes, weight_device);
    add_bias_and_residual<T>(ExecSpace(), with_residual, with_residual, bias_device,
                             on_device<T>(residual, s.rows, s.width));
    // 16-bit types: rounded twice, the first time when it was larger than the sum.
    EXPECT_TRUE(allclose(on_host(with_residual), reference::add(wanted, rounded<T>(residual)), 4 * tolerance<T>));
  });
}

TEST(Triad, adds_a_multiple) {
  const Index rows = 3, width = 37;
  const Values b = random_values("b", rows * width), c = random_values("c", rows * width);
  const auto a = undefined<float>(rows, width);
  triad(ExecSpace(), a, on_device<float>(b, rows, width), on_device<float>(c, rows, width), 0.5F);
  Values half = c;
  for (double& value : half)
    value *= 0.5;
  EXPECT_TRUE(allclose(on_host(a), reference::add(b, half), tolerance<float>));
}

TEST(Linear, gradients_are_those_of_finite_differences) {
  for (const OpShape& shape : op_shapes()) {
    SCOPED_TRACE(to_text(shape));
    const LinearShape s(shape);
    const Values x = random_values("x", s.rows * s.inner), weight = random_values("weight", s.width * s.inner);
    const Values bias = random_values("bias", s.width), dy = random_values("dy", s.rows * s.width);
    const auto dy_device = on_device<double>(dy, s.rows, s.width);
    const auto dx = undefined<double>(s.rows, s.inner);
    const auto dweight = on_device<double>(Values(weight.size(), 0.0), s.width, s.inner);
    const auto dbias = on_device<double>(Values(bias.size(), NAN), s.width);
    matmul<double>(ExecSpace(), dx, Transpose::no, dy_device, Transpose::no,
                   on_device<double>(weight, s.width, s.inner));
    matmul<double>(ExecSpace(), dweight, Transpose::yes, dy_device, Transpose::no,
                   on_device<double>(x, s.rows, s.inner), 1, 1);
    bias_backward<double>(ExecSpace(), dbias, dy_device, 0);
    constexpr std::size_t samples = 8;
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dy, reference::linear(v, weight, bias)); }, x,
                               on_host(dx), samples));
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dy, reference::linear(x, v, bias)); }, weight,
                               on_host(dweight), samples));
    EXPECT_TRUE(gradient_check([&](const Values& v) { return dot(dy, reference::linear(x, weight, v)); }, bias,
                               on_host(dbias), samples));
  }
}

TEST(Linear, bias_gradient_is_added_or_overwrites) {
  for_each_shape_and_type([]<class T>(const OpShape& shape) {
    const LinearShape s(shape);
    const Values dy = random_values("dy", s.rows * s.width);
    Values wanted(static_cast<std::size_t>(s.width), 5.0);
    for (std::size_t i = 0; i < dy.size(); ++i)
      wanted[i % wanted.size()] += rounded<T>({dy[i]})[0];
    const auto dbias = on_device<State<T>>(Values(wanted.size(), 5.0), s.width);
    bias_backward<T>(ExecSpace(), dbias, on_device<T>(dy, s.rows, s.width), 1);
    EXPECT_TRUE(allclose(on_host(dbias), wanted, tolerance<T>));
    for (double& value : wanted)
      value -= 5;
    Kokkos::deep_copy(dbias, State<T>(NAN));
    bias_backward<T>(ExecSpace(), dbias, on_device<T>(dy, s.rows, s.width), 0);
    EXPECT_TRUE(allclose(on_host(dbias), wanted, tolerance<T>));
  });
}

}  // namespace
