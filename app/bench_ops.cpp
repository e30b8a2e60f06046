// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/bench_shape.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/machine_memory.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/ops/embedding.hpp"
#include "core/ops/gelu.hpp"
#include "core/ops/layernorm.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/optim/adamw.hpp"
#include "core/stopwatch.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "models/gpt_config.hpp"
#include "parallel/runtime.hpp"

namespace espalier {
namespace {

struct BenchOpsArguments {
  BenchShape shape;
  bool json = false;
};

// Best of a few calls, after one that warms up.
template <class F>
double best_seconds(const ExecSpace& exec, const F& run) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const Stopwatch stopwatch;
    run();
    compat::fence(exec, "espalier::bench_ops: the call is over when the clock stops");
    const double seconds = stopwatch.seconds();
    if (i > 0)
      best = std::min(best, seconds);
  }
  return best;
}

template <int Rank, class... Extents>
Tensor<float, Rank> filled(Extents... extents) {
  Tensor<float, Rank> tensor("espalier::workspace::bench", static_cast<std::size_t>(extents)...);
  Kokkos::deep_copy(tensor, 0.5F);
  return tensor;
}

/// Times ops at the shapes of one layer of a model; bench/bench_ops.cpp looks at each op more closely.
class OpsBench {
 public:
  explicit OpsBench(const BenchShape& shape)
      : shape_(gpt_preset(shape.model)),
        attention_{shape.micro_batch, shape.sequence_length, shape_.num_heads, shape_.head_size()},
        rows_(shape.micro_batch * shape.sequence_length) {}

  nlohmann::ordered_json run() {
    const Index c = shape_.hidden_size;
    const Index f = shape_.ffn_hidden_size;
    linear("qkv", 3 * c, c);
    linear("attention proj", c, c);
    linear("mlp up", f, c);
    linear("mlp down", c, f);
    embedding();
    layernorm();
    gelu();
    attention();
    cross_entropy();
    adamw();
    return results_;
  }

 private:
  template <class F>
  void add(const std::string& name, double flops, double bytes, const F& run) {
    const double seconds = best_seconds(exec_, run);
    results_.push_back({{"op", name},
                        {"seconds", seconds},
                        {"gflops_per_second", flops / seconds * 1e-9},
                        {"gbytes_per_second", bytes / seconds * 1e-9}});
  }

  // y = x w^T with w (n, k), and both gradients.
  void linear(const std::string& name, Index n, Index k) {
    product(name + ", forward", rows_, n, k, Transpose::no, Transpose::yes);
    product(name + ", input gradient", rows_, k, n, Transpose::no, Transpose::no);
    product(name + ", weight gradient", n, k, rows_, Transpose::yes, Transpose::no);
  }

  void product(const std::string& name, Index m, Index n, Index k, Transpose ta, Transpose tb) {
    const auto a = ta == Transpose::no ? filled<2>(m, k) : filled<2>(k, m);
    const auto b = tb == Transpose::no ? filled<2>(k, n) : filled<2>(n, k);
    const auto c = filled<2>(m, n);
    const MatmulLibrary chosen = matmul_library();
    for (const MatmulLibrary library : matmul_libraries()) {
      set_matmul_library(library);
      add(fmt::format("matmul {} by {}", name, to_string(library)),
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), bytes(m * k + k * n + m * n),
          [&] { matmul<float>(exec_, c, ta, a, tb, b); });
    }
    set_matmul_library(chosen);
  }

  void embedding() {
    const Index c = shape_.hidden_size;
    const auto table = filled<2>(shape_.vocab_size, c), dtable = filled<2>(shape_.vocab_size, c);
    const auto x = filled<2>(rows_, c), dx = filled<2>(rows_, c);
    const Tensor<TokenId, 1> tokens("espalier::workspace::bench_tokens", static_cast<std::size_t>(rows_));
    const auto host = Kokkos::create_mirror_view(tokens);
    for (Index i = 0; i < rows_; ++i)  // all over the table, as in text
      host(static_cast<std::size_t>(i)) = static_cast<TokenId>(i * 7919 % shape_.vocab_size);
    Kokkos::deep_copy(tokens, host);
    add("embedding, forward", 0, bytes(2 * rows_ * c), [&] { embedding_forward<float>(exec_, x, tokens, table); });
    add("embedding, backward", 0, bytes(3 * rows_ * c), [&] { embedding_backward<float>(exec_, dtable, dx, tokens); });
  }

  void layernorm() {
    const Index c = shape_.hidden_size;
    const auto x = filled<2>(rows_, c), y = filled<2>(rows_, c), dx = filled<2>(rows_, c), dy = filled<2>(rows_, c);
    const auto weight = filled<1>(c), bias = filled<1>(c), mean = filled<1>(rows_), rstd = filled<1>(rows_);
    const auto dweight = filled<1>(c), dbias = filled<1>(c);
    add("layernorm, forward", 0, bytes(2 * rows_ * c),
        [&] { layernorm_forward<float>(exec_, y, mean, rstd, x, weight, bias); });
    add("layernorm, input gradient", 0, bytes(4 * rows_ * c),
        [&] { layernorm_backward_input<float>(exec_, dx, dx, dy, x, mean, rstd, weight); });
    add("layernorm, weight gradient", 0, bytes(2 * rows_ * c),
        [&] { layernorm_backward_weight<float>(exec_, dweight, dbias, dy, x, mean, rstd, 1); });
  }

  void gelu() {
    const Index elements = rows_ * shape_.ffn_hidden_size;
    const auto x = filled<2>(rows_, shape_.ffn_hidden_size), y = filled<2>(rows_, shape_.ffn_hidden_size);
    const auto dx = filled<2>(rows_, shape_.ffn_hidden_size);
    add("gelu, forward", 0, bytes(2 * elements), [&] { gelu_forward<float>(exec_, y, x); });
    add("gelu, backward", 0, bytes(3 * elements), [&] { gelu_backward<float>(exec_, dx, y, x); });
  }

  // Products of the causal half: two forward, five backward, which makes the probabilities again.
  void attention() {
    const Index c = shape_.hidden_size;
    const auto qkv = filled<2>(rows_, 3 * c), dqkv = filled<2>(rows_, 3 * c);
    const auto out = filled<2>(rows_, c), dout = filled<2>(rows_, c);
    const auto log_sum_exp = filled<1>(rows_ * shape_.num_heads);
    const double product = static_cast<double>(rows_ * c) * static_cast<double>(attention_.sequence_length + 1);
    add("attention, forward", 2 * product, bytes(4 * rows_ * c),
        [&] { attention_forward<float>(exec_, out, log_sum_exp, qkv, attention_); });
    add("attention, backward", 5 * product, bytes(8 * rows_ * c),
        [&] { attention_backward<float>(exec_, dqkv, dout, out, log_sum_exp, qkv, attention_); });
  }

  void cross_entropy() {
    const auto logits = filled<2>(rows_, shape_.vocab_size);
    const auto losses = filled<1>(rows_);
    const Tensor<TokenId, 1> targets("espalier::workspace::bench_targets", static_cast<std::size_t>(rows_));
    add("cross_entropy, forward and backward", 0, bytes(2 * rows_ * shape_.vocab_size),
        [&] { cross_entropy_forward_backward<float>(exec_, losses, logits, targets, 1e-3F); });
  }

  void adamw() {
    const Index elements = std::min(num_parameters(shape_), Index{1} << 26);
    const auto weights = filled<1>(elements), m = filled<1>(elements), v = filled<1>(elements), g = filled<1>(elements);
    const Tensor<double, 0> clip("espalier::workspace::bench_clip");
    Kokkos::deep_copy(clip, 1.0);
    const auto parts = make_adamw_parts({{0, 0, elements, true}});
    add("adamw", 0, bytes(7 * elements),
        [&] { adamw_update<float>(exec_, weights, weights, m, v, g, parts, AdamWConfig{}, 1e-3, clip, 1); });
  }

  static double bytes(Index elements) { return 4.0 * static_cast<double>(elements); }

  ExecSpace exec_;
  GptConfig shape_;
  AttentionShape attention_;
  Index rows_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

// The largest set of tensors that lies in memory at a time: those of attention, or of the feed-forward layer, or
// logits. In floating point, where no absurd size overflows.
void require_room(const BenchShape& shape) {
  const GptConfig model = gpt_preset(shape.model);
  const double rows = static_cast<double>(shape.micro_batch) * static_cast<double>(shape.sequence_length);
  const Index width = std::max({8 * model.hidden_size, 3 * model.ffn_hidden_size, model.vocab_size});
  const double need = rows * static_cast<double>(width) * sizeof(float);
  const std::size_t available = machine_memory_bytes();
  if (available == 0 || need <= static_cast<double>(available))
    return;
  throw Error(ExitCode::memory, {.what = "the tensors do not fit the memory of this machine",
                                 .got = fmt::format("a need of {} for {} rows of {} numbers",
                                                    bytes_text(static_cast<std::size_t>(need)), rows, width),
                                 .wanted = fmt::format("at most {}", bytes_text(available)),
                                 .todo = "lower --micro-batch or --sequence-length, or choose a smaller --model"});
}

int bench_ops(const BenchOpsArguments& options, int num_ranks) {
  const Index positions = gpt_preset(options.shape.model).max_sequence_length;
  if (num_ranks > 1)
    throw Error(ExitCode::usage, {.what = "bench ops runs on one rank",
                                  .got = counted(num_ranks, "rank"),
                                  .wanted = "1",
                                  .todo = "start it without mpiexec (espalier bench step takes several)"});
  if (options.shape.sequence_length > positions)
    throw Error(ExitCode::usage,
                {.what = "--sequence-length is longer than the model",
                 .got = fmt::format("{} tokens", options.shape.sequence_length),
                 .wanted = fmt::format("at most the {} positions of {}", positions, options.shape.model),
                 .todo = "lower --sequence-length, or choose another --model"});
  require_room(options.shape);
  const nlohmann::ordered_json results = OpsBench(options.shape).run();
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
  const auto options = std::make_shared<BenchOpsArguments>();
  CLI::App* const command = bench.add_subcommand(
      "ops", "Ops of a layer, table and update at the shapes of a model, products by every GEMM library");
  add_shape_options(*command, options->shape);
  command->add_flag("--json", options->json, "print JSON");
  add_gpu_options(*command);
  command->footer("  OMP_NUM_THREADS=2 espalier bench ops --model byte-11m --micro-batch 8");
  command->callback([options, &chosen] {
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return bench_ops(*options, runtime->size()); };
  });
}

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* const bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  bench->footer("  espalier bench ops --model gpt2-124m");
  add_bench_ops(*bench, chosen);
  add_bench_step(*bench, chosen);
  add_bench_machine(*bench, chosen);
}

}  // namespace espalier
