// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>

#include "core/ops/activation.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/embedding.hpp"
#include "core/ops/gradient_norm.hpp"
#include "core/ops/layernorm.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/ops/rmsnorm.hpp"
#include "core/ops/rotary.hpp"
#include "core/optim/adamw.hpp"
#include "tests/support/tensors.hpp"

using namespace espalier;
using namespace espalier::test;

// The same bits from every run of an op, and from any number of threads (a library's GEMM may differ by threads: there
// only repetition is asked for).
namespace {

using Bits = std::map<std::string, std::uint64_t>;
constexpr Index rows = 2 * 150, channels = 4 * 33, vocabulary = 77;

Bits bits_of_ops() {
  Bits bits;
  const ExecSpace exec;
  const auto x = on_device<float>(random_values("x", rows * channels), rows, channels);
  const auto dy = on_device<float>(random_values("dy", rows * channels), rows, channels);
  const auto weight = on_device<float>(random_values("weight", channels), channels);
  const auto bias = on_device<float>(random_values("bias", channels), channels);
  const auto tokens = on_device<TokenId>(random_tokens("tokens", rows, vocabulary), rows);
  const auto y = undefined<float>(rows, channels);
  const auto zeros = [](Index count) { return on_device<float>(Values(static_cast<std::size_t>(count), 0.0), count); };

  const auto mean = zeros(rows), rstd = zeros(rows), dweight = zeros(channels), dbias = zeros(channels);
  layernorm_forward<float>(exec, y, mean, rstd, x, weight, bias);
  bits["layernorm_forward"] = fingerprint(y);
  const auto dx = on_device<float>(random_values("dx", rows * channels), rows, channels);
  layernorm_backward_input<float>(exec, dx, dx, dy, x, mean, rstd, weight);
  bits["layernorm_backward_input"] = fingerprint(dx);
  layernorm_backward_weight<float>(exec, dweight, dbias, dy, x, mean, rstd, 1);
  bits["layernorm_backward_weight"] = fingerprint(dweight) ^ (3 * fingerprint(dbias));

  rmsnorm_forward<float>(exec, y, rstd, x, weight, 1e-6);
  bits["rmsnorm_forward"] = fingerprint(y);
  rmsnorm_backward_input<float>(exec, dx, dx, dy, x, rstd, weight);
  bits["rmsnorm_backward_input"] = fingerprint(dx);
  rmsnorm_backward_weight<float>(exec, dweight, dy, x, rstd, 1);
  bits["rmsnorm_backward_weight"] = fingerprint(dweight);

  const auto half = undefined<float>(rows, channels / 2);
  activation_forward<float>(exec, "swiglu", half, x);
  bits["swiglu_forward"] = fingerprint(half);
  activation_backward<float>(exec, "swiglu", y, half, x);
  bits["swiglu_backward"] = fingerprint(y);
  const auto rotations = undefined<float>(Index{150}, Index{22});
  make_rotary_table<float>(ExecSpace(), rotations, rotary_frequencies({.size = 22}));
  rotary_forward<float>(exec, y, 4, 33, rotations, {.sequence_length = 150});
  bits["rotary_forward"] = fingerprint(y);

  activation_forward<float>(exec, "gelu", y, x);
  bits["gelu_forward"] = fingerprint(y);
  activation_backward<float>(exec, "gelu", y, dy, x);
  bits["gelu_backward"] = fingerprint(y);
  bias_backward<float>(exec, dbias, dy, 1);
  bits["bias_backward"] = fingerprint(dbias);

  const AttentionShape shape{2, 150, 4, 11, 4};
  const auto qkv = on_device<float>(random_values("qkv", rows * channels), rows, channels);  // 3 * 44
  const auto out = undefined<float>(rows, channels / 3);
  const auto log_sum_exp = zeros(rows * 4);
  const auto dqkv = undefined<float>(rows, channels);
  attention_forward<float>(exec, out, log_sum_exp, qkv, shape);
  bits["attention_forward"] = fingerprint(out);
  attention_backward<float>(exec, dqkv, out, out, log_sum_exp, qkv, shape);
  bits["attention_backward"] = fingerprint(dqkv);
  const AttentionShape grouped{2, 150, 6, 11, 3, 70};  // (6 + 2 * 3) * 11 channels
  const auto grouped_out = undefined<float>(rows, 66);
  const auto grouped_sums = zeros(rows * 6);
  attention_forward<float>(exec, grouped_out, grouped_sums, qkv, grouped);
  bits["attention_grouped_forward"] = fingerprint(grouped_out);
  attention_backward<float>(exec, dqkv, grouped_out, grouped_out, grouped_sums, qkv, grouped);
  bits["attention_grouped_backward"] = fingerprint(dqkv);

  const auto table = on_device<float>(random_values("table", vocabulary * channels), vocabulary, channels);
  const auto positions = on_device<float>(random_values("positions", 150 * channels), 150, channels);
  embedding_forward<float>(exec, y, tokens, table);
  add_positions<float>(exec, y, y, positions, 150);
  bits["embedding_forward"] = fingerprint(y);
  embedding_backward<float>(exec, table, dy, tokens, Tensor<int, 1>("scratch", embedding_scratch(vocabulary)));
  add_positions_backward<float>(exec, positions, dy, 150);
  bits["embedding_backward"] = fingerprint(table) ^ (3 * fingerprint(positions));

  const auto losses = zeros(rows);
  const Tensor<double, 0> total("espalier::other::total");
  const auto logits = on_device<float>(random_values("logits", rows * vocabulary), rows, vocabulary);
  cross_entropy_forward_backward<float>(exec, losses, logits, tokens, 0.1F);
  add_losses<float>(exec, total, losses, 0.1);
  bits["cross_entropy"] = fingerprint(logits) ^ (3 * fingerprint(losses)) ^ (5 * fingerprint(total));

  const Index flat = 100000;
  const auto gradients = on_device<float>(random_values("gradients", flat), flat);
  const SquaredNorm norm(exec, {{0, 300}, {512, 99000}});
  norm.compute<float>(exec, gradients);
  const Tensor<double, 0> value("espalier::other::norm"), clip("espalier::other::clip");
  clip_factor(exec, value, clip, norm.sums(), 1.0);
  bits["norm"] = fingerprint(value) ^ (3 * fingerprint(clip));
  const auto w = on_device<float>(random_values("w", flat), flat);
  adamw_update<float>(exec, w, w, zeros(flat), zeros(flat), gradients, make_adamw_parts({{0, 0, 0, flat, true}}), {},
                      1e-3, clip, 3);
  bits["adamw"] = fingerprint(w);

  for (const MatmulLibrary library : matmul_libraries()) {
    const auto product = undefined<float>(rows, rows);
    const MatmulLibrary before = matmul_library();
    set_matmul_library(library);
    matmul<float>(exec, product, Transpose::no, x, Transpose::yes, dy);
    set_matmul_library(before);
    bits[std::string("matmul.") + to_string(library)] = fingerprint(product);
  }
  return bits;
}

TEST(Repeatability, two_runs_give_the_same_bits) {
  const Bits first = bits_of_ops();
  for (int repetition = 0; repetition < 3; ++repetition)
    for (const auto& [op, bits] : bits_of_ops())
      EXPECT_EQ(bits, first.at(op)) << op;
}

// Run by the next test in processes of their own, as Kokkos chooses its threads when it starts.
TEST(Repeatability, DISABLED_print_bits) {
  for (const auto& [op, bits] : bits_of_ops())
    std::printf("bits %s %llu\n", op.c_str(), static_cast<unsigned long long>(bits));
}

Bits bits_with_threads(int threads) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string command = "OMP_NUM_THREADS=" + std::to_string(threads) + " '" +
                              std::string(path.data(), static_cast<std::size_t>(length)) +
                              "' --gtest_also_run_disabled_tests --gtest_filter=Repeatability.DISABLED_print_bits";
  Bits bits;
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    std::array<char, 256> op{};
    unsigned long long value = 0;
    if (std::sscanf(line.data(), "bits %255s %llu", op.data(), &value) == 2)
      bits[op.data()] = value;
  }
  EXPECT_EQ(pclose(pipe), 0);
  return bits;
}

TEST(Repeatability, the_number_of_threads_does_not_matter) {
  if constexpr (!exec_is_host)
    GTEST_SKIP() << "no host threads on this backend";
  const Bits one = bits_with_threads(1);
  ASSERT_GT(one.size(), 10u);
  for (const int threads : {2, 3, 5})
    for (const auto& [op, bits] : bits_with_threads(threads)) {
      if (!op.starts_with("matmul.") || op == "matmul.tiled") {
        EXPECT_EQ(bits, one.at(op)) << op << " with " << threads << " threads";
      }
    }
}

}  // namespace
