// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/gemm_rate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/kokkos_compat.hpp"
#include "core/memory_ledger.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/random.hpp"
#include "core/stopwatch.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/device/device.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/predict_time.hpp"

namespace espalier {
namespace {

constexpr int num_moments = 3;
constexpr double moment_seconds = 0.06;  // many time slices of an operating system that deals out shared cores
constexpr int products_at_a_time = exec_is_host ? 1 : 8;  // queued, as in a step: a GPU does not wait for the host

// One product after another for a moment. The mean, not the best: who shares a core has it to himself at times.
template <class T>
double rate_of_a_moment(const ExecSpace& exec, const Tensor<T, 2>& c, const Tensor<T, 2>& a) {
  const Stopwatch stopwatch;
  const auto size = static_cast<double>(c.extent(0));
  double flops = 0;
  double seconds = 0;
  while (seconds < moment_seconds) {
    for (int product = 0; product < products_at_a_time; ++product)
      matmul<T>(exec, c, Transpose::no, a, Transpose::yes, a);
    compat::fence(exec, "espalier::measure_gemm_rate: the products are done when they are counted");
    flops += products_at_a_time * 2.0 * size * size * size;
    seconds = stopwatch.seconds();
  }
  return flops / seconds;
}

// The measurement is over before the model is allocated: a budget that is smaller than its matrices is the model's.
class NoBudget {
 public:
  NoBudget() { MemoryLedger::instance().set_budget(0); }
  ~NoBudget() { MemoryLedger::instance().set_budget(budget_); }
  NoBudget(const NoBudget&) = delete;
  NoBudget& operator=(const NoBudget&) = delete;

 private:
  std::size_t budget_ = MemoryLedger::instance().budget();
};

constexpr Index probe_size = 1024;

template <class T>
std::vector<double> matmul_rates(const ExecSpace& exec, Index size, int repetitions) {
  const std::vector<MatmulLibrary> libraries = matmul_libraries();
  std::vector<bool> is_left_out;
  for (const MatmulLibrary library : libraries)
    is_left_out.push_back(!sets_a_peak(library));
  if (size > probe_size && libraries.size() > 1) {  // what is slow there would take minutes, and is not the fastest
    const std::vector<double> rates = matmul_rates<T>(exec, probe_size, 1);
    const double best = *std::ranges::max_element(rates);
    for (std::size_t i = 0; i < libraries.size(); ++i)
      is_left_out[i] = is_left_out[i] || libraries[i] == MatmulLibrary::tiled || rates[i] < best / 2;
  }
  const RandomStream stream(1, "measure_matmul_rates");
  Tensor<T, 2> a("espalier::workspace::measure_a", size, size);
  Tensor<T, 2> b("espalier::workspace::measure_b", size, size);
  Tensor<T, 2> c("espalier::workspace::measure_c", size, size);
  Kokkos::parallel_for(
      "espalier::training::measure_matmul_rates::fill", RangePolicy(exec, 0, size), KOKKOS_LAMBDA(const Index i) {
        for (Index j = 0; j < size; ++j) {
          a(i, j) =
              static_cast<T>(static_cast<State<T>>(stream.uniform(static_cast<std::uint64_t>(i * size + j)) - 0.5));
          b(i, j) =
              static_cast<T>(static_cast<State<T>>(stream.uniform(static_cast<std::uint64_t>(j * size + i)) - 0.5));
        }
      });
  compat::fence(exec, "espalier::measure_matmul_rates: inputs are ready before the clock starts");
  // In turns, so that whatever else the machine does for a while meets all of them.
  const MatmulLibrary chosen = matmul_library();
  constexpr double unknown = 1e30;
  std::vector<double> best_seconds(libraries.size(), unknown);
  for (int repetition = 0; repetition <= repetitions; ++repetition)  // one more: the first warms up
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      if (is_left_out[i])
        continue;
      if (libraries[i] == MatmulLibrary::tiled && repetition > 1)
        continue;  // slow by design; one figure is enough
      set_matmul_library(libraries[i]);
      const Stopwatch stopwatch;
      for (int product = 0; product < products_at_a_time; ++product)
        matmul<T>(exec, c, Transpose::no, a, Transpose::yes, b);
      compat::fence(exec, "espalier::measure_matmul_rates: the products are done when the clock stops");
      const double seconds = stopwatch.seconds() / products_at_a_time;
      if (repetition > 0)
        best_seconds[i] = std::min(best_seconds[i], seconds);
    }
  set_matmul_library(chosen);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  std::vector<double> rates;
  rates.reserve(libraries.size());
  for (const double seconds : best_seconds)
    rates.push_back(seconds < unknown ? flops / seconds : 0);
  return rates;
}

// Of the libraries present; found on rank 0, while the others wait.
template <class T>
MatmulLibrary fastest_library(const Communicator& world, Index size) {
  MatmulLibrary fastest = MatmulLibrary::tiled;
  if (world.rank() == 0) {
    const std::vector<double> rates = matmul_rates<T>(ExecSpace(), size, 4);
    const auto best = std::max_element(rates.begin(), rates.end());
    fastest = matmul_libraries().at(static_cast<std::size_t>(best - rates.begin()));
  }
  return library_of_root(world, fastest);
}

template <class T>
double rate_on_all_ranks(const Communicator& world, Index size) {
  const NoBudget no_budget;
  const MatmulLibrary chosen = matmul_library();
  set_matmul_library(fastest_library<T>(world, size));
  const ExecSpace exec;
  const Tensor<T, 2> a("espalier::workspace::gemm_rate_a", size, size);
  const Tensor<T, 2> c("espalier::workspace::gemm_rate_c", size, size);
  const RandomStream stream(1, "gemm_rate");
  Kokkos::parallel_for(
      "espalier::training::gemm_rate::fill", RangePolicy(exec, 0, size * size), KOKKOS_LAMBDA(const Index i) {
        a.data()[i] = static_cast<T>(stream.uniform(static_cast<std::uint64_t>(i)) - 0.5);
      });
  matmul<T>(exec, c, Transpose::no, a, Transpose::yes, a);  // warms up: threads, packing buffers
  double best = 0;
  for (int moment = 0; moment < num_moments; ++moment) {
    barrier(world);
    best = std::max(best, all_reduce(world, rate_of_a_moment<T>(exec, c, a)));
  }
  set_matmul_library(chosen);
  release_matmul_workspace();
  return best;
}

// By its own name, which a config cannot give it wrongly; by run.cluster where that name is not known. "NVIDIA H200 MIG
// 1g.18gb" has the name of the whole GPU and some of its processors; a cluster file describes the part itself.
struct Found {
  Accelerator device;
  double share = 1;  // of the device
};

std::optional<Found> device_of(const RunConfig& config) {
  if (const std::optional<std::string> preset = accelerator_named(device_name())) {
    const Accelerator whole = accelerator_preset(*preset);
    const bool is_part = device_name().find(" MIG ") != std::string::npos && device_processors() > 0;
    return Found{whole, is_part ? static_cast<double>(device_processors()) / whole.processors : 1};
  }
  return config.run.cluster.empty() ? std::nullopt : std::optional(Found{cluster_of(config).device});
}

}  // namespace

bool sets_a_peak(MatmulLibrary library) {
  return library != MatmulLibrary::cublaslt_tf32 || matmul_library() == library;
}

MatmulLibrary library_of_root(const Communicator& world, MatmulLibrary library) {
  auto number = static_cast<std::int32_t>(library);
  broadcast(world, std::span<std::int32_t>(&number, 1), 0);
  return static_cast<MatmulLibrary>(number);
}

MatmulLibrary wanted_matmul_library(const RunConfig& config, ScalarType compute) {
  return config.run.matmul == "auto" ? default_matmul_library(compute) : parse_matmul_library(config.run.matmul);
}

void set_libraries(const RunConfig& config) {
  set_matmul_library(wanted_matmul_library(config, compute_type_of(config.layout.precision)));
  set_attention_library(parse_attention_library(config.run.attention));
}

void agree_on_libraries(const RunConfig& config, const Communicator& world) {
  set_libraries(config);
  set_matmul_library(library_of_root(world, matmul_library()));
}

std::vector<double> measure_matmul_rates(ScalarType type, const ExecSpace& exec, Index size, int repetitions) {
  return with_scalar_type(type, [&]<class T>() { return matmul_rates<T>(exec, size, repetitions); });
}

double measure_gemm_rate(ScalarType type, const Communicator& world, Index size) {
  return with_scalar_type(type, [&]<class T>() { return rate_on_all_ranks<T>(world, size); });
}

std::string matmuls_text(double gemm_rate, int ranks) {
  return fmt::format("matmuls by {} (best of {} measured: {:.0f} GFLOP/s{})", to_string(matmul_library()),
                     std::ranges::count_if(matmul_libraries(), sets_a_peak), gemm_rate * 1e-9,
                     ranks > 1 ? " on all ranks together" : "");
}

std::optional<double> peak_rate(const RunConfig& config, const Communicator& world) {
  if (config.emulates_operations())
    return std::nullopt;
  Precision precision = config.layout.precision;
  const std::optional<Found> found = device_of(config);
  if (!is_priced(precision) || !found ||
      found->device.moves_messages != exec_is_host)  // run.cluster may be of another machine
    return std::nullopt;
  if (matmul_library() == MatmulLibrary::cublaslt_tf32)
    precision = Precision::tf32;
  const double peak = found->device.rate(precision).peak();
  if (peak <= 0)
    return std::nullopt;
  return peak * found->share * world.size() / world.context().ranks_per_device;
}

}  // namespace espalier
