// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Every op at the shapes of gpt2-124m, micro-batch 4, sequence 256 (on GPUs 16 and 1024): what it moves (bytes/s, each
// array counted once where it is read or written) or computes (FLOP/s). `bench_ops --benchmark_filter=attention` runs
// some of them.
#include <benchmark/benchmark.h>

#include <string>

#include "core/kokkos_compat.hpp"
#include "core/memory_ledger.hpp"
#include "core/ops/activation.hpp"
#include "core/ops/attention.hpp"
#include "core/ops/cross_entropy.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/embedding.hpp"
#include "core/ops/gradient_norm.hpp"
#include "core/ops/layernorm.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/ops/rmsnorm.hpp"
#include "core/ops/rotary.hpp"
#include "core/optim/adamw.hpp"
#include "core/random.hpp"

namespace {

using namespace espalier;

constexpr Index B = exec_is_host ? 4 : 16, T = exec_is_host ? 256 : 1024, NH = 12, HS = 64, V = 50257;
constexpr Index N = B * T, C = NH * HS, F = 4 * C;
constexpr Index flat = Index{1} << 24;  // elements of an optimizer sweep: larger than any cache

template <class Scalar, class... Extents>
Tensor<Scalar, static_cast<int>(sizeof...(Extents))> random_tensor(Extents... extents) {
  const Tensor<Scalar, static_cast<int>(sizeof...(Extents))> tensor("espalier::other::bench",
                                                                    static_cast<std::size_t>(extents)...);
  const RandomStream stream(1, "bench");
  Scalar* const data = tensor.data();
  Kokkos::parallel_for(
      "espalier::bench::fill", Kokkos::RangePolicy<ExecSpace>(0, (extents * ...)), KOKKOS_LAMBDA(const Index i) {
        data[i] = static_cast<Scalar>(static_cast<State<Scalar>>(stream.uniform(static_cast<std::uint64_t>(i)) - 0.5));
      });
  return tensor;
}

Tensor<TokenId, 1> random_tokens() {
  const Tensor<TokenId, 1> tokens("espalier::other::bench_tokens", N);
  const RandomStream stream(1, "bench_tokens");
  Kokkos::parallel_for(
      "espalier::bench::fill_tokens", Kokkos::RangePolicy<ExecSpace>(0, N), KOKKOS_LAMBDA(const Index i) {
        tokens(i) = static_cast<TokenId>(stream.bits(static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(V));
      });
  return tokens;
}

enum class Unit { bytes, flops };

// Times `op` until the clock is sure; `amount` is what one call moves or computes.
template <class Op>
void measure(benchmark::State& state, Unit unit, double amount, const Op& op) {
  const ExecSpace exec;
  op(exec);
  compat::fence(exec, "espalier::bench: warm before the clock starts");
  for (auto _ : state) {
    op(exec);
    compat::fence(exec, "espalier::bench: done before the clock stops");
  }
  state.counters[unit == Unit::bytes ? "bytes/s" : "FLOP/s"] =
      benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
}

template <class S>
constexpr double bytes(Index elements) {
  return static_cast<double>(elements) * sizeof(S);
}

template <class S>
void layernorm(benchmark::State& state, int part) {
  const auto x = random_tensor<S>(N, C), y = random_tensor<S>(N, C), dx = random_tensor<S>(N, C);
  const auto weight = random_tensor<S>(C), bias = random_tensor<S>(C);
  const auto dweight = random_tensor<State<S>>(C), dbias = random_tensor<State<S>>(C);
  const auto mean = random_tensor<State<S>>(N), rstd = random_tensor<State<S>>(N);
  layernorm_forward<S>(ExecSpace(), y, mean, rstd, x, weight, bias);
  if (part == 0)
    measure(state, Unit::bytes, bytes<S>(2 * N * C),
            [&](const ExecSpace& exec) { layernorm_forward<S>(exec, y, mean, rstd, x, weight, bias); });
  else if (part == 1)
    measure(state, Unit::bytes, bytes<S>(4 * N * C),
            [&](const ExecSpace& exec) { layernorm_backward_input<S>(exec, dx, dx, y, x, mean, rstd, weight); });
  else
    measure(state, Unit::bytes, bytes<S>(2 * N * C),
            [&](const ExecSpace& exec) { layernorm_backward_weight<S>(exec, dweight, dbias, y, x, mean, rstd, 1); });
}

template <class S>
void rmsnorm(benchmark::State& state, int part) {
  const auto x = random_tensor<S>(N, C), y = random_tensor<S>(N, C), dx = random_tensor<S>(N, C);
  const auto weight = random_tensor<S>(C);
  const auto dweight = random_tensor<State<S>>(C), rstd = random_tensor<State<S>>(N);
  rmsnorm_forward<S>(ExecSpace(), y, rstd, x, weight, 1e-6);
  if (part == 0)
    measure(state, Unit::bytes, bytes<S>(2 * N * C),
            [&](const ExecSpace& exec) { rmsnorm_forward<S>(exec, y, rstd, x, weight, 1e-6); });
  else if (part == 1)
    measure(state, Unit::bytes, bytes<S>(4 * N * C),
            [&](const ExecSpace& exec) { rmsnorm_backward_input<S>(exec, dx, dx, y, x, rstd, weight); });
  else
    measure(state, Unit::bytes, bytes<S>(2 * N * C),
            [&](const ExecSpace& exec) { rmsnorm_backward_weight<S>(exec, dweight, y, x, rstd, 1); });
}

// Q and K of all heads, in rows of [Q | K | V].
template <class S>
void rotary(benchmark::State& state, bool forward) {
  const auto qkv = random_tensor<S>(N, 3 * C);
  const Tensor<State<S>, 2> table("espalier::other::bench_table", T, HS);
  make_rotary_table<State<S>>(ExecSpace(), table, rotary_frequencies({.size = HS}));
  measure(state, Unit::bytes, bytes<S>(4 * N * C), [&](const ExecSpace& exec) {
    if (forward)
      rotary_forward<S>(exec, qkv, 2 * NH, HS, table, {.sequence_length = T});
    else
      rotary_backward<S>(exec, qkv, 2 * NH, HS, table, {.sequence_length = T});
  });
}

// As training chooses it, while it lives.
template <class S>
class PreferredLibrary {
 public:
  PreferredLibrary() { set_matmul_library(default_matmul_library(scalar_type_of<S>())); }
  PreferredLibrary(const PreferredLibrary&) = delete;
  ~PreferredLibrary() { set_matmul_library(before_); }

 private:
  MatmulLibrary before_ = matmul_library();
};

template <class S>
void gelu(benchmark::State& state, bool forward) {
  const auto x = random_tensor<S>(N, F), y = random_tensor<S>(N, F), dx = random_tensor<S>(N, F);
  if (forward)
    measure(state, Unit::bytes, bytes<S>(2 * N * F),
            [&](const ExecSpace& exec) { activation_forward<S>(exec, "gelu", y, x); });
  else
    measure(state, Unit::bytes, bytes<S>(3 * N * F),
            [&](const ExecSpace& exec) { activation_backward<S>(exec, "gelu", dx, y, x); });
}

template <class S>
void swiglu(benchmark::State& state, bool forward) {
  const auto x = random_tensor<S>(N, 2 * F), y = random_tensor<S>(N, F), dx = random_tensor<S>(N, 2 * F);
  if (forward)
    measure(state, Unit::bytes, bytes<S>(3 * N * F),
            [&](const ExecSpace& exec) { activation_forward<S>(exec, "swiglu", y, x); });
  else
    measure(state, Unit::bytes, bytes<S>(5 * N * F),
            [&](const ExecSpace& exec) { activation_backward<S>(exec, "swiglu", dx, y, x); });
}

// Matmuls of the scores that are seen: Q K^T and P V forward; backward makes P again and has four more.
template <class S>
void attention(benchmark::State& state, Index length, bool forward, Index kv_heads = NH, Index window = 0) {
  const AttentionShape shape{N / length, length, NH, HS, kv_heads, window};
  const auto qkv = random_tensor<S>(N, shape.qkv_columns()), dqkv = random_tensor<S>(N, shape.qkv_columns());
  const auto out = random_tensor<S>(N, C), dout = random_tensor<S>(N, C);
  const auto log_sum_exp = random_tensor<State<S>>(N * NH);
  const double flops_of_gemm = 2 * static_cast<double>(shape.batch * C) * shape.seen_keys();
  const PreferredLibrary<S> library;
  attention_forward<S>(ExecSpace(), out, log_sum_exp, qkv, shape);
  if (forward)
    measure(state, Unit::flops, 2 * flops_of_gemm,
            [&](const ExecSpace& exec) { attention_forward<S>(exec, out, log_sum_exp, qkv, shape); });
  else
    measure(state, Unit::flops, 5 * flops_of_gemm,
            [&](const ExecSpace& exec) { attention_backward<S>(exec, dqkv, dout, out, log_sum_exp, qkv, shape); });
}

template <class S>
void embedding(benchmark::State& state, bool forward) {
  const auto x = random_tensor<S>(N, C);
  const auto tokens = random_tokens();
  if (forward) {
    const auto positions = random_tensor<S>(T, C), table = random_tensor<S>(V, C);
    measure(state, Unit::bytes, bytes<S>(4 * N * C + T * C), [&](const ExecSpace& exec) {
      embedding_forward<S>(exec, x, tokens, table);
      add_positions<S>(exec, x, x, positions, T);
    });
  } else {
    const auto dpositions = random_tensor<State<S>>(T, C), dtable = random_tensor<State<S>>(V, C);
    const Tensor<int, 1> scratch("scratch", embedding_scratch(V));
    measure(state, Unit::bytes, bytes<S>(2 * N * C) + bytes<State<S>>(2 * N * C + 2 * T * C),
            [&](const ExecSpace& exec) {
              embedding_backward<S>(exec, dtable, x, tokens, scratch);
              add_positions_backward<S>(exec, dpositions, x, T);
            });
  }
}

template <class S>
void cross_entropy(benchmark::State& state, bool forward) {
  const auto logits = random_tensor<S>(N, V);
  const auto losses = random_tensor<State<S>>(N);
  const auto targets = random_tokens();
  if (forward)
    measure(state, Unit::bytes, bytes<S>(N * V),
            [&](const ExecSpace& exec) { cross_entropy_forward<S>(exec, losses, logits, targets); });
  else
    measure(state, Unit::bytes, bytes<S>(2 * N * V), [&](const ExecSpace& exec) {
      cross_entropy_forward_backward<S>(exec, losses, logits, targets, State<S>(1e-3));
    });
}

template <class S>
void bias(benchmark::State& state, bool forward) {
  const auto y = random_tensor<S>(N, F), residual = random_tensor<S>(N, F);
  const auto b = random_tensor<S>(F);
  const auto db = random_tensor<State<S>>(F);
  if (forward)
    measure(state, Unit::bytes, bytes<S>(3 * N * F),
            [&](const ExecSpace& exec) { add_bias_and_residual<S>(exec, y, y, b, residual); });
  else
    measure(state, Unit::bytes, bytes<S>(N * F), [&](const ExecSpace& exec) { bias_backward<S>(exec, db, y, 1); });
}

template <class S>
void squared_norm(benchmark::State& state) {
  const SquaredNorm norm(ExecSpace(), {{0, flat}});
  const auto values = random_tensor<State<S>>(flat);
  measure(state, Unit::bytes, bytes<State<S>>(flat),
          [&](const ExecSpace& exec) { norm.compute<State<S>>(exec, values); });
}

template <class S>
void adamw(benchmark::State& state) {
  const auto weights = random_tensor<S>(flat);
  const auto gradient = random_tensor<State<S>>(flat), m = random_tensor<State<S>>(flat);
  const auto master_weights = has_master_weights<S> ? random_tensor<State<S>>(flat) : Tensor<State<S>, 1>();
  const Tensor<State<S>, 1> v("espalier::other::bench_v", flat);
  const Tensor<double, 0> clip("espalier::other::bench_clip");
  Kokkos::deep_copy(clip, 1.0);
  const auto parts = make_adamw_parts({{0, 0, 0, flat, true}});
  // Master weights and moments are read and written, gradients read; 16-bit weights are written.
  const double moved = bytes<State<S>>(7 * flat) + (has_master_weights<S> ? bytes<S>(flat) : 0);
  measure(state, Unit::bytes, moved, [&](const ExecSpace& exec) {
    adamw_update<S>(exec, weights, master_weights, m, v, gradient, parts, {}, 1e-6, clip, 10);
  });
}

// The matmuls of one layer and the head: forward, input gradient, weight gradient, which is added up in the state
// type.
template <class S>
void matmul_of(benchmark::State& state, MatmulLibrary library, Index in, Index out, int part) {
  const auto x = random_tensor<S>(N, in), y = random_tensor<S>(N, out), weight = random_tensor<S>(out, in);
  const auto dweight = random_tensor<State<S>>(out, in);
  const MatmulLibrary before = matmul_library();
  set_matmul_library(library);
  measure(state, Unit::flops, 2.0 * static_cast<double>(N * in) * static_cast<double>(out), [&](const ExecSpace& exec) {
    if (part == 0)
      matmul<S>(exec, y, Transpose::no, x, Transpose::yes, weight);
    else if (part == 1)
      matmul<S>(exec, x, Transpose::no, y, Transpose::no, weight);
    else
      matmul<S, State<S>>(exec, dweight, Transpose::yes, y, Transpose::no, x, 1, 1);
  });
  set_matmul_library(before);
}

// Into the mlp and, of gradients, back out of its second half: GELU beside a matmul.
template <class S>
void linear_gelu(benchmark::State& state, bool forward) {
  const auto x = random_tensor<S>(N, C), up = random_tensor<S>(N, F), y = random_tensor<S>(N, F);
  const auto weight = random_tensor<S>(F, C), down = random_tensor<S>(C, F);
  const auto bias = random_tensor<S>(F);
  const PreferredLibrary<S> library;
  measure(state, Unit::flops, 2.0 * static_cast<double>(N * C) * static_cast<double>(F), [&](const ExecSpace& exec) {
    if (forward)
      linear_gelu_forward<S>(exec, y, up, x, weight, bias);
    else
      linear_gelu_backward_input<S>(exec, y, x, down, up);
  });
}

template <class Run>
void add(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

template <class S>
void add_all(const std::string& precision) {
  const auto named = [&](const std::string& op) { return op + "/" + precision; };
  using State = benchmark::State;
  add(named("layernorm_forward"), [](State& s) { layernorm<S>(s, 0); });
  add(named("layernorm_backward_input"), [](State& s) { layernorm<S>(s, 1); });
  add(named("layernorm_backward_weight"), [](State& s) { layernorm<S>(s, 2); });
  add(named("rmsnorm_forward"), [](State& s) { rmsnorm<S>(s, 0); });
  add(named("rmsnorm_backward_input"), [](State& s) { rmsnorm<S>(s, 1); });
  add(named("rmsnorm_backward_weight"), [](State& s) { rmsnorm<S>(s, 2); });
  add(named("rotary_forward"), [](State& s) { rotary<S>(s, true); });
  add(named("rotary_backward"), [](State& s) { rotary<S>(s, false); });
  add(named("swiglu_forward"), [](State& s) { swiglu<S>(s, true); });
  add(named("swiglu_backward"), [](State& s) { swiglu<S>(s, false); });
  add(named("gelu_forward"), [](State& s) { gelu<S>(s, true); });
  add(named("gelu_backward"), [](State& s) { gelu<S>(s, false); });
  for (const Index length : {T, 4 * T}) {
    add(named("attention_forward/" + std::to_string(length)), [=](State& s) { attention<S>(s, length, true); });
    add(named("attention_backward/" + std::to_string(length)), [=](State& s) { attention<S>(s, length, false); });
  }
  constexpr Index kv_heads = 3, window = 256;
  add(named("attention_grouped_forward"), [=](State& s) { attention<S>(s, T, true, kv_heads); });
  add(named("attention_grouped_backward"), [=](State& s) { attention<S>(s, T, false, kv_heads); });
  add(named("attention_window_forward"), [=](State& s) { attention<S>(s, 4 * T, true, NH, window); });
  add(named("attention_window_backward"), [=](State& s) { attention<S>(s, 4 * T, false, NH, window); });
  add(named("embedding_forward"), [](State& s) { embedding<S>(s, true); });
  add(named("embedding_backward"), [](State& s) { embedding<S>(s, false); });
  add(named("cross_entropy_forward"), [](State& s) { cross_entropy<S>(s, true); });
  add(named("cross_entropy_forward_backward"), [](State& s) { cross_entropy<S>(s, false); });
  add(named("add_bias_and_residual"), [](State& s) { bias<S>(s, true); });
  add(named("bias_backward"), [](State& s) { bias<S>(s, false); });
  add(named("squared_norm"), [](State& s) { squared_norm<S>(s); });
  add(named("adamw"), [](State& s) { adamw<S>(s); });

  add(named("linear_gelu_forward"), [](State& s) { linear_gelu<S>(s, true); });
  add(named("linear_gelu_backward_input"), [](State& s) { linear_gelu<S>(s, false); });

  struct Layer {
    const char* name;
    Index in, out;
  };
  for (const MatmulLibrary library : matmul_libraries())
    for (const Layer& layer : {Layer{"qkv", C, 3 * C}, {"proj", C, C}, {"up", C, F}, {"down", F, C}, {"head", C, V}}) {
      if (library == MatmulLibrary::tiled && layer.out == V)
        continue;  // 10 s a matmul, slow by design; the other shapes show as much
      for (const auto& [part, suffix] : {std::pair(0, "forward"), {1, "backward_input"}, {2, "backward_weight"}})
        add(named(std::string("matmul_") + layer.name + "_" + suffix + "/" + to_string(library)),
            [=, part = part](State& s) { matmul_of<S>(s, library, layer.in, layer.out, part); });
    }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Kokkos::initialize(argc, argv);
  MemoryLedger::instance().install();
  benchmark::AddCustomContext("gemm_libraries", describe_matmul_libraries());
  benchmark::AddCustomContext("threads", std::to_string(ExecSpace().concurrency()));
  add_all<float>("fp32");
  add_all<double>("fp64");
  add_all<bfloat16>("bf16");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  Kokkos::finalize();
  return 0;
}
