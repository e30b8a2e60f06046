// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "core/optim/adamw.hpp"
#include "tests/support/allclose.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr AdamWConfig config{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

// Algorithm 2 of Loshchilov and Hutter, 2019, element by element.
struct PlainAdamW {
  Values w, m, v;
  void step(const Values& gradient, double rate, double decay, double clip, int t) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = clip * gradient[i];
      m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
      v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
      const double mhat = m[i] / (1 - std::pow(config.beta1, t));
      const double vhat = v[i] / (1 - std::pow(config.beta2, t));
      w[i] -= rate * (mhat / (std::sqrt(vhat) + config.eps) + decay * w[i]);
    }
  }
};

template <class T>
void compare(Index size, double decay, double tolerance_of_weights) {
  SCOPED_TRACE("size " + std::to_string(size) + ", bytes " + std::to_string(sizeof(T)));
  constexpr Index offset = 64;
  const Index total = size + 2 * offset;
  const auto w = on_device<T>(random_values("w", total), total);
  const auto m = on_device<T>(Values(static_cast<std::size_t>(total), 0.0), total);
  const auto v = on_device<T>(Values(static_cast<std::size_t>(total), 0.0), total);
  const Values start = on_host(w);
  const auto part = [&](const Values& all) { return Values(all.begin() + offset, all.end() - offset); };
  PlainAdamW plain{part(start), Values(static_cast<std::size_t>(size), 0.0),
                   Values(static_cast<std::size_t>(size), 0.0)};
  const Tensor<double, 0> clip("espalier::other::clip");
  AdamWConfig decaying = config;
  decaying.weight_decay = decay;
  const auto parts =
      make_adamw_parts({{offset, offset, offset, size / 2, true},
                        {offset + size / 2, offset + size / 2, offset + size / 2, size - size / 2, true}});
  for (int t = 1; t <= 5; ++t) {
    const Values gradient = rounded<T>(random_values("gradient" + std::to_string(t), total));
    Kokkos::deep_copy(clip, 1.0 / t);
    adamw_update<T>(ExecSpace(), w, w, m, v, on_device<T>(gradient, total), parts, decaying, 0.01 * t, clip, t);
    Kokkos::fence();
    plain.step(part(gradient), 0.01 * t, decay, 1.0 / t, t);
  }
  EXPECT_TRUE(allclose(part(on_host(w)), plain.w, tolerance_of_weights));
  EXPECT_TRUE(allclose(part(on_host(m)), plain.m, tolerance_of_weights));
  EXPECT_TRUE(allclose(part(on_host(v)), plain.v, tolerance_of_weights));
  const Values end = on_host(w);
  for (std::size_t i = 0; i < static_cast<std::size_t>(offset); ++i) {
    ASSERT_EQ(end[i], start[i]) << "before the part";
    ASSERT_EQ(end[end.size() - 1 - i], start[start.size() - 1 - i]) << "after the part";
  }
}

TEST(AdamW, is_that_of_plain_loops) {
  for (const Index size : {1, 63, 1024, 1025, 5000, 40001})
    for (const double decay : {0.0, 0.1}) {
      compare<float>(size, decay, 2e-6);
      compare<double>(size, decay, 1e-13);
    }
}

TEST(AdamW, without_gradient_only_decays) {
  const auto w = on_device<double>(Values{1, -2, 0}, 3);
  const auto zero = on_device<double>(Values{0, 0, 0}, 3);
  const auto m = on_device<double>(Values{0, 0, 0}, 3);
  const auto v = on_device<double>(Values{0, 0, 0}, 3);
  const Tensor<double, 0> clip("espalier::other::clip");
  Kokkos::deep_copy(clip, 1.0);
  adamw_update<double>(ExecSpace(), w, w, m, v, zero, make_adamw_parts({{0, 0, 0, 3, true}}), config, 0.5, clip, 1);
  EXPECT_TRUE(allclose(on_host(w), {0.95, -1.9, 0}, 1e-15));
}

// Weights that compute in 16 bits have master weights, which may be more exact.
template <class T>
void changes_nothing() {
  using S = State<T>;
  const auto gradient = on_device<S>(Values{HUGE_VAL, std::nan(""), 1}, 3);
  const auto w = on_device<T>(Values{1, -2, 3}, 3);
  const auto master_weights = on_device<S>(Values{1.001, -2.001, 3.001}, 3);
  const auto m = on_device<S>(Values{4, 5, 6}, 3);
  const auto v = on_device<S>(Values{7, 8, 9}, 3);
  const Tensor<double, 0> clip("espalier::other::clip");  // 0
  const auto parts = make_adamw_parts({{0, 0, 0, 3, true}});
  adamw_update<T>(ExecSpace(), w, master_weights, m, v, gradient, parts, config, 0.5, clip, 1);
  EXPECT_EQ(on_host(w), (Values{1, -2, 3}));
  EXPECT_TRUE(allclose(on_host(master_weights), {1.001, -2.001, 3.001}, 1e-6));
  EXPECT_EQ(on_host(m), (Values{4, 5, 6}));
  EXPECT_EQ(on_host(v), (Values{7, 8, 9}));
}

TEST(AdamW, a_factor_of_zero_changes_nothing) {
  changes_nothing<float>();
  changes_nothing<double>();
  changes_nothing<bfloat16>();
}

TEST(AdamW, decays_the_segments_that_say_so) {
  ParameterStore<double> parameters;
  const auto matrix = parameters.declare({.name = "matrix", .shape = {3, 5}, .init_mean = 1});
  const auto bias = parameters.declare({.name = "bias", .shape = {5}, .weight_decay = false, .init_mean = 1});
  parameters.allocate();
  parameters.initialize(ExecSpace(), 1);
  const AdamW<double> optimizer(parameters, config);
  const Tensor<double, 0> clip("espalier::other::clip");
  Kokkos::deep_copy(clip, 1.0);
  optimizer.step(ExecSpace(), 0.5, clip, 1);
  EXPECT_TRUE(allclose(on_host(parameters.weight(matrix, 15)), Values(15, 0.95), 1e-15));
  EXPECT_TRUE(allclose(on_host(parameters.weight(bias, 5)), Values(5, 1.0), 0));
}

// Two optimizers of half the parameters each, cut inside segments, are one of all of them.
TEST(AdamW, of_ranges_updates_them_alone_to_the_same_bits) {
  const auto make = [] {
    auto parameters = std::make_unique<ParameterStore<float>>();
    parameters->declare({.name = "matrix", .shape = {37, 91}, .init_std = 1});
    parameters->declare({.name = "bias", .shape = {91}, .weight_decay = false, .init_std = 1});
    parameters->allocate();
    parameters->initialize(ExecSpace(), 1);
    return parameters;
  };
  const auto whole = make();
  const auto halves = make();
  const Index end = whole->flat_size();
  const AdamW<float> of_all(*whole, config);
  const AdamW<float> of_even(*halves, config, {{{0, 91}, {182, 1001}, {3500, end}}});
  const AdamW<float> of_odd(*halves, config, {{{91, 182}, {1001, 3500}}});
  const AdamW<float> of_none(*halves, config, std::vector<IndexRange>{});
  EXPECT_EQ(of_all.owned(), (std::vector<IndexRange>{{0, end}}));
  EXPECT_EQ(of_even.moment_starts(), (std::vector<Index>{0, 91, 91 + 819}));
  EXPECT_EQ(of_odd.exp_avg().extent(0), std::size_t{91 + 2499});
  EXPECT_EQ(of_none.exp_avg().extent(0), std::size_t{0});
  const Tensor<double, 0> clip("espalier::other::clip");
  Kokkos::deep_copy(clip, 0.5);
  for (int t = 1; t <= 3; ++t) {
    const auto gradients = on_device<float>(random_values("gradient" + std::to_string(t), end), end);
    for (const auto* parameters : {whole.get(), halves.get()})
      Kokkos::deep_copy(parameters->flat_gradients(), gradients);
    of_all.step(ExecSpace(), 0.01, clip, t);
    for (const auto* optimizer : {&of_even, &of_odd, &of_none})
      optimizer->step(ExecSpace(), 0.01, clip, t);
  }
  EXPECT_EQ(on_host(whole->flat_weights()), on_host(halves->flat_weights()));
}

// Steps far below the spacing of 16-bit weights add up in the master weights.
template <class T>
void expect_fp32_masters() {
  ParameterStore<T> parameters;
  parameters.declare({.name = "matrix", .shape = {37, 91}, .init_std = 1});
  parameters.allocate();
  parameters.initialize(ExecSpace(), 1);
  ParameterStore<float> wide;
  wide.declare({.name = "matrix", .shape = {37, 91}, .init_std = 1});
  wide.allocate();
  wide.initialize(ExecSpace(), 1);
  const Index end = parameters.flat_size();
  const std::vector<IndexRange> part = {{100, end}};
  const AdamW<T> optimizer(parameters, config, part);
  optimizer.initialize_master_weights(ExecSpace(), 1);
  const AdamW<float> wanted(wide, config, part);
  const Tensor<double, 0> clip("espalier::other::clip");
  Kokkos::deep_copy(clip, 1.0);
  for (int t = 1; t <= 20; ++t) {
    const auto gradients = on_device<float>(random_values("gradient" + std::to_string(t), end), end);
    Kokkos::deep_copy(parameters.flat_gradients(), gradients);
    Kokkos::deep_copy(wide.flat_gradients(), gradients);
    optimizer.step(ExecSpace(), 1e-5, clip, t);
    wanted.step(ExecSpace(), 1e-5, clip, t);
  }
  const Values weights = on_host(wide.flat_weights());
  EXPECT_EQ(on_host(optimizer.master_weights()), Values(weights.begin() + 100, weights.end()));
  const Values rounded_weights = on_host(parameters.flat_weights());
  for (std::size_t i = 0; i < weights.size(); ++i)
    ASSERT_EQ(rounded_weights[i],
              static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(weights[i])))));
}

TEST(AdamW, updates_masters_of_16_bit_weights) {
  expect_fp32_masters<bfloat16>();
  expect_fp32_masters<float16>();
}

}  // namespace
