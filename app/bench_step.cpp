// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/bench_shape.hpp"
#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "app/progress.hpp"
#include "core/median.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/random.hpp"
#include "io/json_by_name.hpp"
#include "io/pack/json_text.hpp"
#include "io/tokens/token_file.hpp"
#include "models/cost.hpp"
#include "parallel/device/device.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/shard_over.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/step/typed_trainer.hpp"

namespace espalier {
namespace {

struct BenchStepArguments {
  BenchShape shape;
  std::string precision = "fp32";
  std::string matmul = "auto";
  int steps = 5;
  bool json = false;
  std::vector<std::string> overrides;
};

Path temporary_directory() {
  std::error_code error;
  Path directory = std::filesystem::temp_directory_path(error);
  if (const char* const given = std::getenv("TMPDIR"); error)
    throw Error(ExitCode::usage, {.what = "there is no directory for temporary files",
                                  .where = given == nullptr ? "/tmp" : fmt::format("TMPDIR={}", given),
                                  .got = system_message(error.value()),
                                  .wanted = "an existing directory that you can write to",
                                  .todo = "set TMPDIR to one"});
  return directory;
}

// Random tokens in a temporary file: the step reads its data as a real one does.
class RandomTokens {
 public:
  RandomTokens(Index vocab_size, Index count, int rank)
      : path_(temporary_directory() / fmt::format("espalier-bench-{}-{}.bin", ::getpid(), rank)) {
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

struct GemmRate {
  double flops_per_second = 0;
  std::string library;
  Index size = 0;
};

// The GEMM rate of one rank that works alone: the best of square matmuls over all libraries that set a peak.
GemmRate best_gemm_rate(ScalarType compute) {
  GemmRate best;
  const std::vector<MatmulLibrary> libraries = matmul_libraries();
  // On a GPU few rows leave processors idle.
  for (const Index size : exec_is_host ? std::vector<Index>{1024, 2048, 4096} : std::vector<Index>{4096, 8192}) {
    const std::vector<double> rates =
        measure_matmul_rates(compute, ExecSpace(), size, exec_is_host && size == 4096 ? 2 : 4);
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

// What is run: an override wins over the option for the same.
RunConfig bench_config(const BenchStepArguments& options, int replicas) {
  const BenchShape& shape = options.shape;
  std::vector<std::string> keys = {"model.preset=" + shape.model,
                                   fmt::format("batch.micro_batch_size={}", shape.micro_batch),
                                   fmt::format("batch.global_batch_size={}", shape.micro_batch * replicas),
                                   fmt::format("batch.sequence_length={}", shape.sequence_length),
                                   "precision.compute=" + options.precision,
                                   fmt::format("run.steps={}", options.steps),
                                   "data.train=[\"random\"]",
                                   "run.matmul=" + options.matmul};
  keys.insert(keys.end(), options.overrides.begin(), options.overrides.end());
  RunConfig config = parse_run_config("", "espalier bench step", keys, replicas);
  if (config.data.separates_documents())
    throw Error(ExitCode::usage, {.what = "a bench uses random tokens, which have no documents",
                                  .got = "data.documents = \"separate\"",
                                  .wanted = "data.documents = \"joined\"",
                                  .todo = "leave it out; bench_documents of the build directory times both"});
  return config;
}

struct TimedSteps {
  std::vector<double> seconds;
  PhaseSeconds phases;           // of a step, the mean
  std::size_t device_bytes = 0;  // in use on the device after a step, the most
};

// As the driver sees it: of all programs, with what the runtime and libraries take. 0 on hosts.
std::size_t device_bytes_in_use() {
  const DeviceMemory memory = device_memory();
  return memory.total_bytes - memory.free_bytes;
}

// One step more than is timed: the first touches memory for the first time.
TimedSteps time_steps(Trainer& trainer, Index num_steps, const Progress& progress) {
  TimedSteps times;
  for (Index i = 0; i <= num_steps; ++i) {
    progress.now(i == 0 ? "first step, not timed"
                        : fmt::format("step {} of {}{}", i, num_steps,
                                      i == 1 ? "" : ", the last took " + duration_text(times.seconds.back())));
    const StepReport report = trainer.step();
    times.device_bytes = std::max(times.device_bytes, device_bytes_in_use());
    if (i == 0)
      continue;
    times.seconds.push_back(report.step_seconds);
    for (std::size_t p = 0; p < num_phases; ++p)
      times.phases.seconds[p] += report.seconds.seconds[p] / static_cast<double>(num_steps);
  }
  return times;
}

struct Measured {
  TimedSteps steps;
  GemmRate gemm;
  std::optional<double> peak_rate;  // of all devices, where it is known
  MemoryByCategory peak;
  std::size_t resident_over_start = 0;
  std::size_t peak_resident = 0;
  std::size_t device_bytes_at_start = 0;
  std::size_t link_bytes = 0;  // of device memory, that NCCL has taken
};

Measured measure(RunConfig config, Runtime& runtime) {
  const Layout layout = make_run_layout(config, runtime.size());
  require_memory(config, layout, memory_of_a_rank(runtime.world()));
  const Progress progress(
      fmt::format("{}, {}, {} per step on {}: {}; 1 + {} to time, the GEMM rate before and after", config.model_name(),
                  to_string(config.layout.precision), counted(config.tokens_per_step(), "token"),
                  counted(runtime.size(), "rank"), layout.short_text(), counted(config.total_steps(), "step")),
      runtime.rank() == 0);
  const RandomTokens tokens(config.model.shape.vocab_size, 4 * (config.tokens_per_step() + config.sequence_length) + 1,
                            runtime.rank());
  config.data.train = {tokens.path()};
  const ProcessMesh mesh(runtime.world(), layout.mesh(), layout.virtual_stages > 1);

  Measured measured;
  const std::size_t at_start = resident_bytes();
  measured.device_bytes_at_start = device_bytes_in_use();
  GemmRate before;
  progress.now("GEMM rate");
  const ScalarType compute = types_of_run(config).compute;
  set_libraries(config);
  const auto measure_rate = [&] {
    before = best_gemm_rate(compute);
    release_matmul_workspace();
  };
  if (exec_is_host)
    MemoryLedger::instance().record_library_scratch_of(measure_rate);
  else  // what becomes resident is the host's memory, not the accelerator's
    measure_rate();
  measured.peak_rate = peak_rate(config, runtime.world());
  MemoryLedger::instance().reset_peak();

  const std::unique_ptr<Trainer> trainer = make_trainer(ExecSpace(), config, layout, mesh);
  measured.steps = time_steps(*trainer, config.total_steps(), progress);
  measured.link_bytes = runtime.world().context().link_bytes();
  measured.resident_over_start = resident_bytes() - std::min(resident_bytes(), at_start);
  measured.peak = MemoryLedger::instance().peak();  // without the matrices of the measurement below
  measured.peak_resident = peak_resident_bytes();
  progress.now("GEMM rate again");
  const GemmRate after = best_gemm_rate(compute);
  measured.gemm = before.flops_per_second > after.flops_per_second ? before : after;
  if (runtime.size() > 1)  // which share the machine
    measured.gemm.flops_per_second = measure_gemm_rate(compute, runtime.world(), measured.gemm.size);
  return measured;
}

nlohmann::ordered_json to_json(const Measured& measured, const RunConfig& config,
                               const std::vector<std::string>& overrides, int num_ranks) {
  const double step_seconds = median_of(measured.steps.seconds);
  const double tokens_per_second = static_cast<double>(config.tokens_per_step()) / step_seconds;
  const double flops = tokens_per_second * training_flops_per_token(config.model.shape, config.sequence_length);
  const Index parameters = num_parameters(config.model.shape);
  const MemoryByCategory& peak = measured.peak;
  const std::size_t state = peak[Category::weights] + peak[Category::gradients] + peak[Category::optimizer];
  nlohmann::ordered_json phase_seconds;
  for (std::size_t p = 0; p < num_phases; ++p)
    if (measured.steps.phases.seconds[p] > 0)
      phase_seconds[to_string(static_cast<Phase>(p))] = measured.steps.phases.seconds[p];
  nlohmann::ordered_json json = {
      {"model", config.model_name()},
      {"micro_batch", config.layout.micro_batch},
      {"sequence_length", config.sequence_length},
      {"precision", to_string(config.layout.precision)},
      {"overrides", overrides},
      {"ranks", num_ranks},
      {"threads", ExecSpace().concurrency()},
      {"matmul", to_string(matmul_library())},
      {"tokens_per_second", tokens_per_second},
      {"step_seconds", step_seconds},
      {"flops_per_second", flops},
      {"gemm_flops_per_second", measured.gemm.flops_per_second},
      {"gemm_library", measured.gemm.library},
      {"gemm_size", measured.gemm.size},
      {"gemm_fraction",
       gemm_fraction(config.model.shape, config.sequence_length, tokens_per_second, measured.gemm.flops_per_second)},
      {"mfu", measured.peak_rate ? nlohmann::ordered_json(mfu(config.model.shape, config.sequence_length,
                                                              tokens_per_second, *measured.peak_rate))
                                 : nlohmann::ordered_json()},
      {"seconds", phase_seconds},
      {"parameters", parameters},
      {"memory_peak_bytes", by_category(peak)},
      {"library_scratch_bytes", MemoryLedger::instance().library_scratch()},
      {"state_bytes_per_parameter", static_cast<double>(state) / static_cast<double>(parameters)},
      {"resident_bytes_over_start", measured.resident_over_start},
      {"peak_resident_bytes", measured.peak_resident}};
  if (const DeviceMemory memory = device_memory(); memory.total_bytes > 0) {
    const std::size_t peak_in_use = measured.steps.device_bytes;
    json["device"] = device_name();
    json["device_bytes"] = memory.total_bytes;
    json["device_bytes_in_use"] = peak_in_use;
    json["device_bytes_over_start"] = peak_in_use - std::min(peak_in_use, measured.device_bytes_at_start);
    json["nccl_bytes"] = measured.link_bytes;
  }
  return json;
}

void print_table(const nlohmann::ordered_json& result) {
  for (const auto& [key, value] : result.items())
    if (value.is_object())
      for (const auto& [name, number] : value.items())
        print_answer("{:<28} {}\n", key + "." + name, json_text(number));
    else
      print_answer("{:<28} {}\n", key, value.is_string() ? value.get<std::string>() : json_text(value));
}

int bench_step(const BenchStepArguments& options, Runtime& runtime) {
  RunConfig config = bench_config(options, runtime.size());
  resolve_ranks_per_node(config, runtime.world());
  if (runtime.rank() == 0)
    for (const std::string& warning : config_warnings(config, runtime.size()))
      note_to_stderr("warning: " + warning);
  const Measured measured = measure(config, runtime);
  if (runtime.rank() != 0)
    return 0;
  const nlohmann::ordered_json result = to_json(measured, config, options.overrides, runtime.size());
  if (options.json)
    print_answer("{}\n", json_text(result, 2));
  else
    print_table(result);
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Chosen& chosen) {
  const auto options = std::make_shared<BenchStepArguments>();
  CLI::App* const command =
      bench.add_subcommand("step", "Time a whole training step: tokens per second, GEMM fraction, memory");
  add_shape_options(*command, options->shape);
  command->add_option("--precision", options->precision, "type to compute in; default fp32")
      ->check(CLI::IsMember(compute_type_names()));
  command->add_option("--matmul", options->matmul, "GEMM library; auto (default): by CPU");
  command->add_option("--steps", options->steps, "steps to time; default 5")->check(between(1, 1 << 20));
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("overrides", options->overrides, "section.key=value of a config; overrides the options");
  add_gpu_options(*command);
  command->footer(
      "  OMP_NUM_THREADS=2 espalier bench step --model gpt2-124m --micro-batch 4\n"
      "  espalier bench step --precision bf16 parallel.recompute=full");
  command->callback([options, &chosen] {
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return bench_step(*options, *runtime); };
  });
}

}  // namespace espalier
