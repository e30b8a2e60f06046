// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/bench_shape.hpp"
#include "app/bench_timing.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "core/machine_memory.hpp"
#include "core/ops/activation.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/attention_library.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/ops/embedding.hpp"
#include "core/ops/gradient_norm.hpp"
#include "core/ops/layernorm.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/optim/adamw.hpp"
#include "io/pack/json_text.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "models/embedding.hpp"
#include "models/model_config.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/run_config.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/gemm_rate.hpp"

namespace espalier {
namespace {

struct BenchOpsArguments {
  BenchShape shape;
  std::string precision = "fp32";
  std::string only;
  std::vector<std::string> overrides;
  bool json = false;
};

/// Times ops at the shapes of one layer of a model; bench/bench_ops.cpp looks at each op more closely.
template <class T>
class OpsBench {
 public:
  OpsBench(const ModelConfig& model, const BenchOpsArguments& options)
      : shape_(model),
        attention_{options.shape.micro_batch, options.shape.sequence_length, model.num_heads, model.head_size(),
                   model.num_heads},
        rows_(options.shape.micro_batch * options.shape.sequence_length),
        only_(options.only) {}

  nlohmann::ordered_json run() {
    const Index c = shape_.hidden_size;
    const Index f = shape_.ffn_hidden_size;
    const double seconds = triad_seconds(exec_);
    memory_rate_ = 3 * bytes<float>(triad_rows * triad_width) / seconds;
    const std::string memory = "memory, a = b + s c";
    const bool memory_alone = wants(memory);
    results_.push_back({{"op", memory},
                        {"seconds", seconds},
                        {"gflops_per_second", 0.0},
                        {"gbytes_per_second", memory_rate_ * 1e-9},
                        {"of_memory", 1.0}});
    linear("qkv", 3 * c, c);
    linear("attention proj", c, c);
    linear("mlp up", f, c);
    linear("mlp down", c, f);
    linear("head", padded_vocabulary(), c, Tiled::no);  // many seconds; the other matmuls show as much
    embedding();
    layernorm();
    gelu();
    for (const AttentionLibrary library : attention_libraries())
      if (library == AttentionLibrary::own || has_master_weights<T>)  // cuDNN's is for 16 bits
        attention(library);
    cross_entropy();
    squared_norm();
    adamw();
    if (results_.size() == 1 && !memory_alone)
      throw Error(ExitCode::usage, {.what = "no op has this name",
                                    .got = "--only " + only_,
                                    .wanted = fmt::format("a part of one of these names: {}", fmt::join(ops_, "; ")),
                                    .todo = "change --only, or leave it out to run all ops"});
    return results_;
  }

 private:
  enum class Tiled { no, yes };

  // What is not wanted neither allocates nor runs.
  bool wants(const std::string& name) {
    const std::string op = name.substr(0, name.find(','));
    if (ops_.empty() || ops_.back() != op)
      ops_.push_back(op);
    return name.find(only_) != std::string::npos;
  }

  template <class F>
  void add(const std::string& name, double flops, double bytes, const F& run) {
    if (!wants(name))
      return;
    const double seconds = best_seconds(exec_, run);
    results_.push_back({{"op", name},
                        {"seconds", seconds},
                        {"gflops_per_second", flops / seconds * 1e-9},
                        {"gbytes_per_second", bytes / seconds * 1e-9}});
    if (flops == 0)
      results_.back()["of_memory"] = bytes / seconds / memory_rate_;
  }

  // y = x w^T with w (n, k), and both gradients.
  void linear(const std::string& name, Index n, Index k, Tiled tiled = Tiled::yes) {
    gemm<T>(name + ", forward", rows_, n, k, Transpose::no, Transpose::yes, tiled);
    gemm<T>(name + ", input gradient", rows_, k, n, Transpose::no, Transpose::no, tiled);
    gemm<State<T>>(name + ", weight gradient", n, k, rows_, Transpose::yes, Transpose::no, tiled);
  }

  template <class Out>
  void gemm(const std::string& of, Index m, Index n, Index k, Transpose ta, Transpose tb, Tiled tiled) {
    const auto name_by = [&](MatmulLibrary library) { return fmt::format("matmul {} by {}", of, to_string(library)); };
    std::vector<MatmulLibrary> wanted;
    for (const MatmulLibrary library : matmul_libraries()) {
      if (library == MatmulLibrary::tiled && tiled == Tiled::no)
        continue;
      if (library == MatmulLibrary::cublaslt_tf32 && !std::is_same_v<T, float>)
        continue;  // no other than cublaslt
      if (wants(name_by(library)))
        wanted.push_back(library);
    }
    if (wanted.empty())
      return;
    const auto a = ta == Transpose::no ? filled<T, 2>(m, k) : filled<T, 2>(k, m);
    const auto b = tb == Transpose::no ? filled<T, 2>(k, n) : filled<T, 2>(n, k);
    const auto c = filled<Out, 2>(m, n);
    const double moved = bytes<T>(m * k + k * n) + bytes<Out>(m * n);
    const MatmulLibrary chosen = matmul_library();
    for (const MatmulLibrary library : wanted) {
      set_matmul_library(library);
      add(name_by(library), 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), moved,
          [&] { matmul<T, Out>(exec_, c, ta, a, tb, b); });
    }
    set_matmul_library(chosen);
  }

  void embedding() {
    if (!wants("embedding, forward") && !wants("embedding, backward"))
      return;
    const Index c = shape_.hidden_size;
    const auto table = filled<T, 2>(shape_.vocab_size, c);
    const auto dtable = filled<State<T>, 2>(shape_.vocab_size, c);
    const auto x = filled<T, 2>(rows_, c), dx = filled<T, 2>(rows_, c);
    const Tensor<TokenId, 1> tokens = some_tokens();
    const Tensor<int, 1> scratch("espalier::workspace::embedding", embedding_scratch(shape_.vocab_size));
    add("embedding, forward", 0, 2 * bytes<T>(rows_ * c), [&] { embedding_forward<T>(exec_, x, tokens, table); });
    add("embedding, backward", 0, bytes<T>(rows_ * c) + 2 * bytes<State<T>>(rows_ * c),
        [&] { embedding_backward<T>(exec_, dtable, dx, tokens, scratch); });
  }

  void layernorm() {
    const Index c = shape_.hidden_size;
    const Index partial_rows = layernorm_partial_rows(rows_, c);
    const std::string weight_gradient =
        partial_rows > 0 ? "layernorm, weight gradient of partial sums" : "layernorm, weight gradient";
    if (!wants("layernorm, forward") && !wants("layernorm, input gradient") && !wants(weight_gradient))
      return;
    const auto x = filled<T, 2>(rows_, c), y = filled<T, 2>(rows_, c), dx = filled<T, 2>(rows_, c);
    const auto dy = filled<T, 2>(rows_, c);
    const auto weight = filled<T, 1>(c), bias = filled<T, 1>(c);
    const auto mean = filled<State<T>, 1>(rows_), rstd = filled<State<T>, 1>(rows_);
    const auto dweight = filled<State<T>, 1>(c), dbias = filled<State<T>, 1>(c);
    const auto partial = filled<State<T>, 2>(partial_rows, 2 * c);
    add("layernorm, forward", 0, 2 * bytes<T>(rows_ * c),
        [&] { layernorm_forward<T>(exec_, y, mean, rstd, x, weight, bias); });
    add("layernorm, input gradient", 0, 4 * bytes<T>(rows_ * c),
        [&] { layernorm_backward_input<T>(exec_, dx, dx, dy, x, mean, rstd, weight, partial); });
    add(weight_gradient, 0,
        partial_rows > 0 ? bytes<State<T>>(static_cast<Index>(partial.size())) : 2 * bytes<T>(rows_ * c),
        [&] { layernorm_backward_weight<T>(exec_, dweight, dbias, dy, x, mean, rstd, 1, partial); });
  }

  void gelu() {
    if (!wants("gelu, forward") && !wants("gelu, backward"))
      return;
    const Index f = shape_.ffn_hidden_size;
    const auto x = filled<T, 2>(rows_, f), y = filled<T, 2>(rows_, f), dx = filled<T, 2>(rows_, f);
    add("gelu, forward", 0, 2 * bytes<T>(rows_ * f), [&] { activation_forward<T>(exec_, "gelu", y, x); });
    add("gelu, backward", 0, 3 * bytes<T>(rows_ * f), [&] { activation_backward<T>(exec_, "gelu", dx, y, x); });
  }

  void attention(AttentionLibrary library) {
    const AttentionLibrary chosen = attention_library();
    set_attention_library(library);
    const std::string by =
        describe_attention(scalar_type_of<T>(), attention_);  // own kernels also where cuDNN has none
    const std::string forward = "attention, forward by " + by, backward = "attention, backward by " + by;
    if (wants(forward) || wants(backward))
      attention(forward, backward);
    set_attention_library(chosen);
  }

  // Matmuls of the causal half: two forward, five backward, which makes the probabilities again.
  void attention(const std::string& forward_name, const std::string& backward_name) {
    const Index c = shape_.hidden_size;
    const auto qkv = filled<T, 2>(rows_, 3 * c), dqkv = filled<T, 2>(rows_, 3 * c);
    const auto out = filled<T, 2>(rows_, c), dout = filled<T, 2>(rows_, c);
    const auto log_sum_exp = filled<State<T>, 1>(rows_ * shape_.num_heads);
    const double flops_of_gemm = static_cast<double>(rows_ * c) * static_cast<double>(attention_.sequence_length + 1);
    const auto forward = [&] { attention_forward<T>(exec_, out, log_sum_exp, qkv, attention_); };
    add(forward_name, 2 * flops_of_gemm, 4 * bytes<T>(rows_ * c), forward);
    forward();  // backward reads what it leaves
    add(backward_name, 5 * flops_of_gemm, 8 * bytes<T>(rows_ * c),
        [&] { attention_backward<T>(exec_, dqkv, dout, out, log_sum_exp, qkv, attention_); });
  }

  void cross_entropy() {
    if (!wants("cross_entropy, forward and backward"))
      return;
    const Tensor<T, 2> logits = Kokkos::subview(filled<T, 2>(rows_, padded_vocabulary()), Kokkos::ALL,
                                                std::pair<Index, Index>(0, shape_.vocab_size));
    const auto losses = filled<State<T>, 1>(rows_);
    const Tensor<TokenId, 1> targets = some_tokens();
    add("cross_entropy, forward and backward", 0, 2 * bytes<T>(rows_ * shape_.vocab_size),
        [&] { cross_entropy_forward_backward<T>(exec_, losses, logits, targets, State<T>(1e-3)); });
  }

  void squared_norm() {
    if (!wants("squared_norm"))
      return;
    const Index elements = num_flat();
    const SquaredNorm norm(exec_, {{0, elements}});
    const auto gradient = filled<State<T>, 1>(elements);
    add("squared_norm", 0, bytes<State<T>>(elements), [&] { norm.compute<State<T>>(exec_, gradient); });
  }

  // Master weights and moments are read and written, gradients read; 16-bit weights are written.
  void adamw() {
    if (!wants("adamw"))
      return;
    const Index elements = num_flat();
    const auto weights = filled<T, 1>(elements);
    const auto master_weights = has_master_weights<T> ? filled<State<T>, 1>(elements) : Tensor<State<T>, 1>();
    const auto m = filled<State<T>, 1>(elements), g = filled<State<T>, 1>(elements);
    const Tensor<State<T>, 1> v("espalier::workspace::bench_v", static_cast<std::size_t>(elements));
    const Tensor<double, 0> clip("espalier::workspace::bench_clip");
    Kokkos::deep_copy(clip, 1.0);
    const auto parts = make_adamw_parts({{0, 0, 0, elements, true}});
    add("adamw", 0, 7 * bytes<State<T>>(elements) + (has_master_weights<T> ? bytes<T>(elements) : 0),
        [&] { adamw_update<T>(exec_, weights, master_weights, m, v, g, parts, AdamWConfig{}, 1e-6, clip, 1); });
  }

  // All over the table, as in text.
  Tensor<TokenId, 1> some_tokens() const {
    Tensor<TokenId, 1> tokens("espalier::workspace::bench_tokens", static_cast<std::size_t>(rows_));
    const auto host = Kokkos::create_mirror_view(tokens);
    for (Index i = 0; i < rows_; ++i)
      host(static_cast<std::size_t>(i)) = static_cast<TokenId>(i * 7919 % shape_.vocab_size);
    Kokkos::deep_copy(tokens, host);
    return tokens;
  }

  // Rows of logits lie as far from each other in training, too.
  Index padded_vocabulary() const {
    return (shape_.vocab_size + logits_here.multiple - 1) / logits_here.multiple * logits_here.multiple;
  }

  // Elements of the sweeps over all parameters.
  Index num_flat() const { return std::min(num_parameters(shape_), Index{1} << 26); }

  template <class S>
  static double bytes(Index elements) {
    return static_cast<double>(sizeof(S)) * static_cast<double>(elements);
  }

  ExecSpace exec_;
  ModelConfig shape_;
  AttentionShape attention_;
  Index rows_;
  std::string only_;
  std::vector<std::string> ops_;  // what there is
  double memory_rate_ = 1;        // bytes a second
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

// The largest set of tensors that lies in memory at a time: those of attention, or of the feed-forward layer, or
// logits. In floating point, where no absurd size overflows.
template <class T>
void require_machine_memory(const ModelConfig& model, const BenchShape& shape) {
  const double rows = static_cast<double>(shape.micro_batch) * static_cast<double>(shape.sequence_length);
  const Index width = std::max({8 * model.hidden_size, 3 * model.ffn_hidden_size, model.vocab_size});
  const double need = rows * static_cast<double>(width) * sizeof(T);
  const std::size_t available = machine_memory_bytes();
  if (available == 0 || need <= static_cast<double>(available))
    return;
  throw Error(ExitCode::memory, {.what = "the tensors do not fit the memory of this machine",
                                 .got = fmt::format("a need of {} for {} rows of {} numbers",
                                                    bytes_text(static_cast<std::size_t>(need)), rows, width),
                                 .wanted = fmt::format("at most {}", bytes_text(available)),
                                 .todo = "lower --micro-batch or --sequence-length, or choose a smaller --model"});
}

// The preset, and what an override changes of it.
RunConfig ops_config(const BenchOpsArguments& options) {
  std::vector<std::string> keys = {"model.preset=" + options.shape.model, "precision.compute=" + options.precision,
                                   "data.train=[\"none\"]", "run.steps=1"};
  keys.insert(keys.end(), options.overrides.begin(), options.overrides.end());
  return parse_run_config("", "espalier bench ops", keys, 1);
}

void print_ops(const nlohmann::ordered_json& results) {
  print_answer("{:<56} {:>10} {:>10} {:>8} {:>10}\n", "op", "ms", "GFLOP/s", "GB/s", "of memory");
  for (const auto& row : results)
    print_answer("{:<56} {:>10.3f} {:>10.1f} {:>8.1f} {:>10}\n", row["op"].get<std::string>(),
                 row["seconds"].get<double>() * 1e3, row["gflops_per_second"].get<double>(),
                 row["gbytes_per_second"].get<double>(),
                 row.contains("of_memory") ? fmt::format("{:.2f}", row["of_memory"].get<double>()) : "");
}

int bench_ops(const BenchOpsArguments& options, int num_ranks) {
  if (num_ranks > 1)
    throw Error(ExitCode::usage, {.what = "bench ops runs on one rank",
                                  .got = counted(num_ranks, "rank"),
                                  .wanted = "1",
                                  .todo = "start it without mpiexec (espalier bench step takes several)"});
  const RunConfig config = ops_config(options);
  const ModelConfig& model = config.model.shape;
  const Index positions = model.max_sequence_length;
  if (options.shape.sequence_length > positions)
    throw Error(ExitCode::usage,
                {.what = "--sequence-length is longer than the model",
                 .got = fmt::format("{} tokens", options.shape.sequence_length),
                 .wanted = fmt::format("at most the {} positions of {}", positions, options.shape.model),
                 .todo = "lower --sequence-length, or choose another --model or model.max_sequence_length"});
  const nlohmann::ordered_json results = with_compute_type(config.layout.precision, [&]<class T>() {
    require_machine_memory<T>(model, options.shape);
    set_libraries(config);
    return OpsBench<T>(model, options).run();
  });
  if (options.json)
    print_answer("{}\n", json_text(results, 2));
  else
    print_ops(results);
  return 0;
}

}  // namespace

void add_bench_ops(CLI::App& bench, Chosen& chosen) {
  const auto options = std::make_shared<BenchOpsArguments>();
  CLI::App* const command =
      bench.add_subcommand("ops", "Time single ops at the shapes of a model, and matmuls by every GEMM library");
  add_shape_options(*command, options->shape);
  command->add_option("--precision", options->precision, "type to compute in; default fp32")
      ->check(CLI::IsMember(compute_type_names()));
  command->add_option("--only", options->only, "only ops whose name has this part, such as attention");
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("overrides", options->overrides, "section.key=value of a config, such as model.num_heads=32");
  add_gpu_options(*command);
  command->footer(
      "  OMP_NUM_THREADS=2 espalier bench ops --model byte-11m --micro-batch 8\n"
      "  espalier bench ops --precision bf16 --only attention model.num_heads=6");
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
