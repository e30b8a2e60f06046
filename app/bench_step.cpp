// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "core/median.hpp"
#include "core/ops/matmul.hpp"
#include "core/random.hpp"
#include "io/json_by_name.hpp"
#include "io/token_file.hpp"
#include "models/cost.hpp"
#include "training/gemm_rate.hpp"
#include "training/require_memory.hpp"
#include "training/trainer.hpp"
#include "training/with_compute_type.hpp"

namespace espalier {
namespace {

struct Options {
  std::string model = "gpt2-124m";
  Index micro_batch = 4;
  Index sequence_length = 256;
  std::string precision = "fp32";
  std::string matmul = "auto";
  int steps = 5;
  bool json = false;
  std::vector<std::string> overrides;
};

// Random tokens in a temporary file: the step reads its data as a real one does.
class RandomTokens {
 public:
  RandomTokens(Index vocab_size, Index count, int rank)
      : path_(std::filesystem::temp_directory_path() / fmt::format("espalier-bench-{}-{}.bin", ::getpid(), rank)) {
    const RandomStream random(1, "bench_step");
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<TokenId>(random.bits(i) % static_cast<std::uint64_t>(vocab_size));
    TokenFileWriter writer(path_, "random", vocab_size);
    writer.append(tokens);
    writer.finish();
  }
  ~RandomTokens() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RandomTokens(const RandomTokens&) = delete;
  RandomTokens& operator=(const RandomTokens&) = delete;
  std::string path() const { return path_.string(); }

 private:
  Path path_;
};

// What goes on, on standard error, where it cannot mix with --json: a line at the start, and on a terminal one below it
// that is drawn over itself.
class Progress {
 public:
  Progress(const std::string& title, bool is_root) : is_drawn_(is_root && isatty(STDERR_FILENO) == 1) {
    if (is_root)
      fmt::print(stderr, "{}\n", title);
  }
  ~Progress() { now(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void now(const std::string& text) const {
    if (is_drawn_)
      fmt::print(stderr, "\r\033[K{}", text);
  }

 private:
  bool is_drawn_;
};

struct GemmRate {
  double flops_per_second = 0;
  std::string library;
  Index size = 0;
};

// The GEMM rate of one rank that works alone: the best of square products over all libraries.
template <class T>
GemmRate best_gemm_rate() {
  GemmRate best;
  const std::vector<MatmulLibrary> libraries = matmul_libraries();
  for (const Index size : {1024, 2048, 4096}) {
    const std::vector<double> rates = measure_matmul_rates<T>(ExecSpace(), size, size == 4096 ? 2 : 4);
    for (std::size_t i = 0; i < rates.size(); ++i)
      if (rates[i] > best.flops_per_second)
        best = {rates[i], to_string(libraries[i]), size};
  }
  return best;
}

nlohmann::ordered_json by_category(const MemoryByCategory& memory) {
  nlohmann::ordered_json json = json_by_name<Category>(memory.bytes);
  json["total"] = memory.total();
  return json;
}

RunConfig bench_config(const Options& options, int replicas) {
  std::vector<std::string> keys = {"model.preset=" + options.model,
                                   fmt::format("batch.micro_batch_size={}", options.micro_batch),
                                   fmt::format("batch.global_batch_size={}", options.micro_batch * replicas),
                                   fmt::format("batch.sequence_length={}", options.sequence_length),
                                   "precision.compute=" + options.precision,
                                   fmt::format("run.steps={}", options.steps),
                                   "data.train=[\"random\"]",
                                   "run.matmul=" + options.matmul};
  keys.insert(keys.end(), options.overrides.begin(), options.overrides.end());
  return parse_run_config("", "espalier bench step", keys, replicas);
}

template <class T>
nlohmann::ordered_json measure(const Options& options, Runtime& runtime) {
  RunConfig config = bench_config(options, runtime.size());
  const GptConfig& shape = config.model.shape;
  const RunLayout layout = make_run_layout(config, runtime.size());
  require_memory(config, layout, memory_of_a_rank(runtime.world()));
  const Progress progress(
      fmt::format("{}, {}, {} a step on {}: {}; 1 + {} to time, the GEMM rate before and after", config.model_name(),
                  config.precision.compute, counted(config.tokens_per_step(), "token"), counted(runtime.size(), "rank"),
                  layout.text(), counted(options.steps, "step")),
      runtime.rank() == 0);
  const RandomTokens tokens(shape.vocab_size, 4 * (config.tokens_per_step() + config.batch.sequence_length) + 1,
                            runtime.rank());
  config.data.train = {tokens.path()};
  const ProcessMesh mesh(runtime.world(), layout.mesh);

  const std::size_t at_start = resident_bytes();
  GemmRate before;
  progress.now("GEMM rate");
  MemoryLedger::instance().record_library_scratch_of([&] {
    before = best_gemm_rate<T>();
    set_matmul_library(wanted_matmul_library<T>(config));
    release_matmul_workspace();
  });
  MemoryLedger::instance().reset_peak();

  Trainer<T> trainer(ExecSpace(), config, layout, mesh);
  std::vector<double> seconds;
  PhaseSeconds phases;
  for (int i = 0; i <= options.steps; ++i) {  // one more: the first touches memory for the first time
    progress.now(i == 0 ? "first step, not timed"
                        : fmt::format("step {} of {}{}", i, options.steps,
                                      i == 1 ? "" : ", the last took " + duration_text(seconds.back())));
    const StepReport report = trainer.step();
    if (i == 0)
      continue;
    seconds.push_back(report.step_seconds);
    for (std::size_t p = 0; p < num_phases; ++p)
      phases.seconds[p] += report.seconds.seconds[p] / options.steps;
  }
  const std::size_t resident = resident_bytes() - std::min(resident_bytes(), at_start);
  const MemoryByCategory peak = MemoryLedger::instance().peak();  // without the matrices of the measurement below
  const std::size_t peak_resident = peak_resident_bytes();
  progress.now("GEMM rate again");
  const GemmRate after = best_gemm_rate<T>();
  GemmRate rate = before.flops_per_second > after.flops_per_second ? before : after;
  if (runtime.size() > 1)  // which share the machine
    rate.flops_per_second = measure_gemm_rate<T>(runtime.world(), rate.size);

  const double tokens_per_second = static_cast<double>(config.tokens_per_step()) / median_of(seconds);
  const double flops = tokens_per_second * training_flops_per_token(shape, config.batch.sequence_length);
  nlohmann::ordered_json phase_seconds;
  for (std::size_t p = 0; p < num_phases; ++p)
    if (phases.seconds[p] > 0)
      phase_seconds[to_string(static_cast<Phase>(p))] = phases.seconds[p];
  return {{"model", options.model},
          {"micro_batch", options.micro_batch},
          {"sequence_length", options.sequence_length},
          {"precision", options.precision},
          {"overrides", options.overrides},
          {"ranks", runtime.size()},
          {"threads", ExecSpace().concurrency()},
          {"matmul", to_string(matmul_library())},
          {"tokens_per_second", tokens_per_second},
          {"step_seconds", median_of(seconds)},
          {"flops_per_second", flops},
          {"gemm_flops_per_second", rate.flops_per_second},
          {"gemm_library", rate.library},
          {"gemm_size", rate.size},
          {"gemm_fraction", flops / rate.flops_per_second},
          {"seconds", phase_seconds},
          {"parameters", num_parameters(shape)},
          {"memory_peak_bytes", by_category(peak)},
          {"library_scratch_bytes", MemoryLedger::instance().library_scratch()},
          {"state_bytes_per_parameter",
           static_cast<double>(peak[Category::weights] + peak[Category::gradients] + peak[Category::optimizer]) /
               static_cast<double>(num_parameters(shape))},
          {"resident_bytes_over_start", resident},
          {"peak_resident_bytes", peak_resident}};
}

void print_table(const nlohmann::ordered_json& result) {
  for (const auto& [key, value] : result.items())
    if (value.is_object())
      for (const auto& [name, number] : value.items())
        fmt::print("{:<28} {}\n", key + "." + name, number.dump());
    else
      fmt::print("{:<28} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
}

int bench_step(const Options& options, Runtime& runtime) {
  const nlohmann::ordered_json result =
      with_compute_type(options.precision, [&]<class T>() { return measure<T>(options, runtime); });
  if (runtime.rank() != 0)
    return 0;
  if (options.json)
    fmt::print("{}\n", result.dump(2));
  else
    print_table(result);
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Chosen& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command =
      bench.add_subcommand("step", "A whole training step: tokens per second, share of the GEMM rate, memory");
  command->add_option("--model", options->model, "preset; default gpt2-124m");
  command->add_option("--micro-batch", options->micro_batch, "sequences; default 4")->check(between(1, 1 << 24));
  command->add_option("--sequence-length", options->sequence_length, "tokens of each; default 256")
      ->check(between(1, 1 << 24));
  command->add_option("--precision", options->precision, "fp32 (default), bf16, fp16 or fp64")
      ->check(CLI::IsMember(compute_types));
  command->add_option("--matmul", options->matmul, "GEMM library; auto (default): by CPU");
  command->add_option("--steps", options->steps, "steps to time; default 5")->check(between(1, 1 << 20));
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("overrides", options->overrides, "section.key=value of a config, wins over the options");
  command->footer(
      "  OMP_NUM_THREADS=2 espalier bench step --model gpt2-124m --micro-batch 4\n"
      "  espalier bench step --precision bf16 parallel.recompute=full");
  command->callback([options, &chosen] {
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return bench_step(*options, *runtime); };
  });
}

}  // namespace espalier
