// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "core/kokkos_compat.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/ops/gelu.hpp"
#include "core/ops/layernorm.hpp"
#include "core/ops/matmul.hpp"
#include "core/optim/adamw.hpp"
#include "models/gpt_config.hpp"

namespace espalier {
namespace {

struct Options {
  std::string model = "gpt2-124m";
  Index micro_batch = 4;
  Index sequence_length = 256;
  bool json = false;
};

// Best of a few calls, after one that warms up.
template <class F>
double best_seconds(const ExecSpace& exec, const F& run) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    compat::fence(exec, "espalier::bench_ops: the call is over when the clock stops");
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i > 0)
      best = std::min(best, elapsed.count());
  }
  return best;
}

class OpsBench {
 public:
  explicit OpsBench(const Options& options)
      : shape_(gpt_preset(options.model)), rows_(options.micro_batch * options.sequence_length), options_(options) {}

  nlohmann::ordered_json run() {
    products();
    passes();
    return results_;
  }

 private:
  using Matrix2 = Tensor<float, 2>;
  static Matrix2 tensor(Index rows, Index cols) {
    const Tensor<float, 1> flat = allocate<float>(Category::workspace, "bench", rows * cols);
    Kokkos::deep_copy(flat, 0.5F);
    return keep().emplace_back(flat), Matrix2(flat.data(), rows, cols);
  }
  static std::vector<Tensor<float, 1>>& keep() {
    static std::vector<Tensor<float, 1>> owners;
    return owners;
  }

  void add(const std::string& name, double seconds, double flops, double bytes) {
    results_.push_back({{"op", name},
                        {"seconds", seconds},
                        {"gflops_per_second", flops / seconds * 1e-9},
                        {"gbytes_per_second", bytes / seconds * 1e-9}});
  }

  void product(const std::string& name, Index m, Index n, Index k, Transpose ta, Transpose tb) {
    const Matrix2 a = ta == Transpose::no ? tensor(m, k) : tensor(k, m);
    const Matrix2 b = tb == Transpose::no ? tensor(k, n) : tensor(n, k);
    const Matrix2 c = tensor(m, n);
    const MatmulLibrary chosen = matmul_library();
    for (const MatmulLibrary library : matmul_libraries()) {
      set_matmul_library(library);
      const double seconds = best_seconds(exec_, [&] { matmul<float>(exec_, c, ta, a, tb, b); });
      add(fmt::format("matmul {} by {}", name, to_string(library)), seconds,
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          4.0 * static_cast<double>(m * k + k * n + m * n));
    }
    set_matmul_library(chosen);
    keep().clear();
  }

  void products() {
    const Index c = shape_.hidden_size;
    const Index f = shape_.ffn_hidden_size;
    product("mlp up, forward", rows_, f, c, Transpose::no, Transpose::yes);
    product("mlp up, input gradient", rows_, c, f, Transpose::no, Transpose::no);
    product("mlp up, weight gradient", f, c, rows_, Transpose::yes, Transpose::no);
    product("qkv, forward", rows_, 3 * c, c, Transpose::no, Transpose::yes);
  }

  void passes() {
    const Index c = shape_.hidden_size;
    const Index f = shape_.ffn_hidden_size;
    const auto n = static_cast<double>(rows_);
    const Matrix2 x = tensor(rows_, c), y = tensor(rows_, c), wide = tensor(rows_, f), qkv = tensor(rows_, 3 * c);
    const Matrix2 dqkv = tensor(rows_, 3 * c), logits = tensor(rows_, shape_.vocab_size);
    const Tensor<float, 1> weight = allocate<float>(Category::workspace, "bench", c), mean(weight),
                           rstd(tensor(1, rows_).data(), rows_);
    const Tensor<float, 1> statistics = allocate<float>(Category::workspace, "bench", rows_ * shape_.num_heads);
    const Tensor<TokenId, 1> targets = allocate<TokenId>(Category::workspace, "bench", rows_);
    const AttentionShape attention{options_.micro_batch, options_.sequence_length, shape_.num_heads,
                                   shape_.head_size()};
    const double attention_flops = 2.0 * n * static_cast<double>(c) * static_cast<double>(options_.sequence_length + 1);

    add("layernorm, forward",
        best_seconds(exec_, [&] { layernorm_forward<float>(exec_, y, rstd, statistics, x, weight, weight); }), 0,
        8 * n * static_cast<double>(c));
    add("gelu, forward", best_seconds(exec_, [&] { gelu_forward<float>(exec_, wide, wide); }), 0,
        8 * n * static_cast<double>(f));
    add("attention, forward",
        best_seconds(exec_, [&] { attention_forward<float>(exec_, y, statistics, qkv, attention); }), attention_flops,
        16 * n * static_cast<double>(c));
    add("attention, backward",
        best_seconds(exec_, [&] { attention_backward<float>(exec_, dqkv, x, y, statistics, qkv, attention); }),
        2.5 * attention_flops, 36 * n * static_cast<double>(c));
    add("cross_entropy, forward and backward",
        best_seconds(
            exec_,
            [&] { cross_entropy_forward_backward<float>(exec_, rstd, logits, targets, shape_.vocab_size, 1e-3F); }),
        0, 8 * n * static_cast<double>(shape_.vocab_size));
    const Index elements = Index{1} << 24;
    const Tensor<float, 1> w = allocate<float>(Category::workspace, "bench", elements),
                           m = allocate<float>(Category::workspace, "bench", elements);
    const Tensor<float, 1> v = allocate<float>(Category::workspace, "bench", elements),
                           g = allocate<float>(Category::workspace, "bench", elements);
    const Tensor<double, 0> clip("espalier::workspace::bench_clip");
    add("adamw",
        best_seconds(exec_, [&] { adamw_update<float>(exec_, w, w, m, v, g, 0, elements, AdamWConfig{}, 1e-3, 0.1, clip, 1); }), 0,
        28.0 * static_cast<double>(elements));
    keep().clear();
  }

  ExecSpace exec_;
  GptConfig shape_;
  Index rows_;
  Options options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

int bench_ops(const Options& options) {
  const nlohmann::ordered_json results = OpsBench(options).run();
  if (options.json) {
    fmt::print("{}\n", results.dump(2));
    return 0;
  }
  fmt::print("{:<48} {:>10} {:>10} {:>8}\n", "op", "ms", "GFLOP/s", "GB/s");
  for (const auto& row : results)
    fmt::print("{:<48} {:>10.3f} {:>10.1f} {:>8.1f}\n", row["op"].get<std::string>(),
               row["seconds"].get<double>() * 1e3, row["gflops_per_second"].get<double>(),
               row["gbytes_per_second"].get<double>());
  return 0;
}

}  // namespace

void add_bench_ops(CLI::App& bench, Chosen& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command =
      bench.add_subcommand("ops", "Each op at the shapes of a model, products by every GEMM library");
  command->add_option("--model", options->model, "preset; default gpt2-124m");
  command->add_option("--micro-batch", options->micro_batch, "sequences; default 4")->check(CLI::PositiveNumber);
  command->add_option("--sequence-length", options->sequence_length, "tokens of each; default 256")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options, &chosen] {
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime*) { return bench_ops(*options); };
  });
}

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* const bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  add_bench_ops(*bench, chosen);
  add_bench_step(*bench, chosen);
}

}  // namespace espalier
