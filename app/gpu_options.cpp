// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/gpu_options.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "core/error.hpp"
#include "core/types.hpp"
#include "parallel/collectives/transport.hpp"
#include "parallel/launch/launch_environment.hpp"

namespace espalier {
namespace {

struct GpuOption {
  const char* name;
  const char* variable;
  std::string description;
};

const std::array gpu_options{
    GpuOption{"--ranks-per-gpu", ranks_per_gpu_variable,
              "number of ranks that may share a GPU; default: ESPALIER_RANKS_PER_GPU, or 1"},
    GpuOption{"--transport", transport_variable,
              transport_words() + ": what carries tensors between GPUs; default: ESPALIER_TRANSPORT, or auto"}};

}  // namespace

void add_gpu_options(CLI::App& command) {
  if (exec_is_host)
    return;
  for (const GpuOption& option : gpu_options)
    command.add_option_function<std::string>(
        option.name, [&option](const std::string& value) { setenv(option.variable, value.c_str(), 1); },
        option.description);
}

void refuse_gpu_options(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments)
    for (const GpuOption& option : gpu_options)
      if (exec_is_host && argument.substr(0, argument.find('=')) == option.name)
        throw Error(
            ExitCode::usage,
            {.what = "this option needs a GPU build",
             .got = argument,
             .wanted = "options of this build, which computes on CPUs only",
             .todo = fmt::format("leave out {}, or build with -DESPALIER_ENABLE_CUDA=ON (docs/gpus.md)", option.name)});
}

}  // namespace espalier
