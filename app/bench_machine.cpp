// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "io/own_output.hpp"
#include "io/units.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/device/device.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/measure_machine.hpp"

namespace espalier {
namespace {

constexpr OutputMark machine_mark{.kind = "a file of `espalier bench machine`",
                                  .begin = "# Measured by espalier bench machine.\n"};

struct BenchMachineArguments {
  std::string output = "machine.toml";
  std::vector<std::string> precisions = {"fp32"};
};

void print_link(const char* name, const LinkTier& link) {
  if (link.bandwidth > 0)
    print_answer("{:<18} {}, {}\n", name, quantity_text(Quantity::bytes_per_second, link.bandwidth),
                 quantity_text(Quantity::seconds, link.latency));
}

// What a rank computes on.
std::string device_text(const Accelerator& device, int ranks_per_device) {
  if constexpr (exec_is_host)
    return counted(device.processors, "thread");
  return fmt::format("{} ({}{})", device_name(), counted(device.processors, "multiprocessor"),
                     ranks_per_device > 1 ? fmt::format(" for each of {} ranks", ranks_per_device) : "");
}

void print_machine(const Cluster& cluster, int ranks_per_device, const std::vector<MachineFit>& fits) {
  const Accelerator& device = cluster.device;
  print_answer("{:<18} {} x {} of {}, {} each\n", "devices", cluster.num_nodes, cluster.devices_per_node,
               device_text(device, ranks_per_device),
               quantity_text(Quantity::bytes, static_cast<double>(device.memory_bytes)));
  print_answer("{:<18} {}, of which elementwise kernels get {:.2f}\n", "memory bandwidth",
               quantity_text(Quantity::bytes_per_second, device.memory_bandwidth), device.memory_efficiency);
  for (const MachineFit& fit : fits) {
    const MatrixRate& rate = device.rate(fit.precision);
    print_answer("{:<18} {}, large matmuls {:.2f} of it, attention {:.2f}; layers within {:.1f} % (median), {:.1f} %\n",
                 to_string(fit.precision), quantity_text(Quantity::flops_per_second, rate.peak_flops),
                 rate.matmul_efficiency, rate.attention_efficiency, 100 * fit.median_error, 100 * fit.worst_error);
  }
  print_link("between ranks", cluster.node);
  print_link("between hosts", cluster.network);
}

int bench_machine(const BenchMachineArguments& options, const Runtime& runtime) {
  attempt_together(runtime.world(), ExitCode::write, [&] {
    if (runtime.rank() == 0)
      require_own_output(options.output, machine_mark);
  });
  std::vector<MachineFit> fits;
  const Cluster cluster = measure_machine(runtime.world(), options.precisions, fits,
                                          [](const std::string& what) { print_note("measuring {}\n", what); });
  if (runtime.rank() != 0)
    return 0;
  write_output(options.output, machine_mark, fmt::format("{}{}", machine_mark.begin, to_toml(cluster)));
  print_machine(cluster, runtime.world().context().ranks_per_device, fits);
  print_answer("written to {0}: espalier plan --cluster {0}, or run.cluster = \"{0}\" in a config\n", options.output);
  return 0;
}

}  // namespace

void add_bench_machine(CLI::App& bench, Chosen& chosen) {
  const auto options = std::make_shared<BenchMachineArguments>();
  CLI::App* const command =
      bench.add_subcommand("machine", "Calibrate the planner: write this machine as a cluster file");
  command->add_option("--output", options->output, "file to write; default machine.toml")->type_name("FILE.toml");
  command->add_option("--precision", options->precisions, "precisions to measure; default fp32")
      ->delimiter(',')
      ->check(CLI::IsMember(measurable_precisions()));
  add_gpu_options(*command);
  command->footer(
      "  Start it with the ranks and threads of the runs that you plan:\n"
      "  OMP_NUM_THREADS=2 espalier bench machine\n"
      "  mpiexec -n 2 espalier bench machine --output two_ranks.toml");
  command->callback([options, command, &chosen] {
    refuse_empty_values(*command);
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return bench_machine(*options, *runtime); };
  });
}

}  // namespace espalier
