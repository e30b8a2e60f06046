// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/activation.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "tests/support/matmul_operands.hpp"
#include "tests/support/op_shapes.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

// A linear layer with its neighbours, fused or not, through every library: N rows, I inputs, O outputs. 16-bit types
// are rounded once more where a neighbour is a pass of its own.
namespace {

template <class T>
struct Layer {
  Index rows, in, out;
  Values x, weight, bias, residual, dy;

  explicit Layer(const OpShape& s)
      : rows(s.rows()),
        in(s.channels()),
        out(s.vocabulary),
        x(matmul_operands<T>(random_values("x", rows * in, 2))),
        weight(matmul_operands<T>(random_values("weight", out * in))),
        bias(rounded<T>(random_values("bias", out))),
        residual(rounded<T>(random_values("residual", rows * out))),
        dy(matmul_operands<T>(random_values("dy", rows * out))) {}

  auto on_device_x() const { return on_device<T>(x, rows, in); }
  auto on_device_weight() const { return on_device<T>(weight, out, in); }
  auto on_device_bias() const { return on_device<T>(bias, out); }
  auto on_device_dy() const { return on_device<T>(dy, rows, out); }
  Values linear() const { return reference::linear(x, weight, bias); }
};

// check(layer) with each library chosen, for each type and shape. Sizes that are multiples of 8 are those that cuBLASLt
// fuses GELU for.
template <class Check>
void for_each_library(const Check& check) {
  const MatmulLibrary before = matmul_library();
  const auto with_shape = [&]<class T>(const OpShape& shape) {
    for (const MatmulLibrary library : matmul_libraries()) {
      SCOPED_TRACE(to_string(library));
      set_matmul_library(library);
      check(Layer<T>(shape));
    }
  };
  for_each_shape_and_type(with_shape);
  run_check<bfloat16>(with_shape, {4, 48, 4, 16, 192});
  run_check<float16>(with_shape, {4, 48, 4, 16, 192});
  set_matmul_library(before);
}

TEST(FusedLinear, forward_through_gelu_is_that_of_plain_loops) {
  for_each_library([]<class T>(const Layer<T>& s) {
    const auto up = undefined<T>(s.rows, s.out), y = undefined<T>(s.rows, s.out);
    linear_gelu_forward<T>(ExecSpace(), y, up, s.on_device_x(), s.on_device_weight(), s.on_device_bias());
    EXPECT_TRUE(allclose(on_host(up), s.linear(), 4 * tolerance<T>, {s.rows, s.out}));
    EXPECT_TRUE(allclose(on_host(y), reference::gelu(s.linear()), 4 * tolerance<T>, {s.rows, s.out}));
  });
}

TEST(FusedLinear, forward_with_residual_is_that_of_plain_loops) {
  for_each_library([]<class T>(const Layer<T>& s) {
    const auto y = undefined<T>(s.rows, s.out);
    linear_add_forward<T>(ExecSpace(), y, s.on_device_x(), s.on_device_weight(), s.on_device_bias(),
                          on_device<T>(s.residual, s.rows, s.out));
    EXPECT_TRUE(allclose(on_host(y), reference::add(s.linear(), s.residual), 4 * tolerance<T>, {s.rows, s.out}));
  });
}

TEST(FusedLinear, gradient_through_gelu_is_that_of_fp64) {
  for_each_library([]<class T>(const Layer<T>& s) {
    const Values before_gelu = rounded<T>(random_values("up", s.rows * s.in, 4));
    const auto dup = undefined<T>(s.rows, s.in);
    linear_gelu_backward_input<T>(ExecSpace(), dup, s.on_device_dy(), s.on_device_weight(),
                                  on_device<T>(before_gelu, s.rows, s.in));
    const auto wanted = undefined<double>(s.rows, s.in);
    matmul<double>(ExecSpace(), wanted, Transpose::no, on_device<double>(s.dy, s.rows, s.out), Transpose::no,
                   on_device<double>(s.weight, s.out, s.in));
    activation_backward<double>(ExecSpace(), "gelu", wanted, wanted, on_device<double>(before_gelu, s.rows, s.in));
    EXPECT_TRUE(allclose(on_host(dup), on_host(wanted), 4 * tolerance<T>, {s.rows, s.in}));
  });
}

TEST(FusedLinear, weight_gradients_are_added_or_overwrite) {
  for_each_library([]<class T>(const Layer<T>& s) {
    using S = State<T>;
    const auto dweight = on_device<S>(Values(s.weight.size(), 2.0), s.out, s.in);
    const auto dbias = on_device<S>(Values(s.bias.size(), 3.0), s.out);
    const auto wanted = on_device<double>(Values(s.weight.size(), 2.0), s.out, s.in);
    for (int repetition = 0; repetition < 2; ++repetition) {  // the first may also time algorithms
      linear_backward_weight<T>(ExecSpace(), dweight, dbias, s.on_device_dy(), s.on_device_x(), 1);
      matmul<double>(ExecSpace(), wanted, Transpose::yes, on_device<double>(s.dy, s.rows, s.out), Transpose::no,
                     on_device<double>(s.x, s.rows, s.in), 1, 1);
    }
    Values dbias_wanted(s.bias.size(), 3.0);
    for (std::size_t i = 0; i < s.dy.size(); ++i)
      dbias_wanted[i % s.bias.size()] += 2 * s.dy[i];
    const double relative = tolerance<S>;
    EXPECT_TRUE(allclose(on_host(dweight), on_host(wanted), relative, {s.out, s.in}));
    EXPECT_TRUE(allclose(on_host(dbias), dbias_wanted, relative));

    const auto alone = on_device<S>(Values(s.weight.size(), NAN), s.out, s.in);
    const auto bias_alone = on_device<S>(Values(s.bias.size(), NAN), s.out);
    for (int repetition = 0; repetition < 2; ++repetition)
      linear_backward_weight<T>(ExecSpace(), alone, bias_alone, s.on_device_dy(), s.on_device_x(), 0);
    Values alone_wanted = on_host(wanted);
    for (double& value : alone_wanted)
      value = (value - 2) / 2;
    for (double& value : dbias_wanted)
      value = (value - 3) / 2;
    EXPECT_TRUE(allclose(on_host(alone), alone_wanted, relative, {s.out, s.in}));
    EXPECT_TRUE(allclose(on_host(bias_alone), dbias_wanted, relative));
  });
}

}  // namespace
