// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "app/stop_requests.hpp"

namespace espalier {

class Runtime;

/// What a command does once its options are parsed; returns the exit code. `runtime` is null for a command that needs
/// neither MPI nor Kokkos.
using Action = std::function<int(Runtime* runtime)>;

/// A command that was chosen on the command line.
struct Chosen {
  Action action;
  bool needs_runtime = false;
  bool prints_only = false;  ///< of several ranks one does it
  bool resumes = false;      ///< stops on request (exit 75), and resumes when it is launched again
  std::unique_ptr<EndAtStopRequest> launching = {};  ///< of a command that resumes: until it hears requests itself
};

// Each adds its options to the command line and fills `chosen` when it is the one called.
void add_train(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_diagnose(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_verify(CLI::App& app, Chosen& chosen);
void add_evaluate(CLI::App& app, Chosen& chosen);
void add_generate(CLI::App& app, Chosen& chosen);
void add_data(CLI::App& app, Chosen& chosen);
void add_data_pack_conversations(CLI::App& data, Chosen& chosen);
void add_data_tokenize(CLI::App& data, Chosen& chosen);
void add_checkpoint(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_help(CLI::App& app, Chosen& chosen);  ///< the last: it knows all others
void add_bench_ops(CLI::App& bench, Chosen& chosen);
void add_bench_step(CLI::App& bench, Chosen& chosen);
void add_bench_machine(CLI::App& bench, Chosen& chosen);

/// "Espalier 0.3 (4c6d7e4)"; the version alone where the source is no repository of ours.
std::string program_text();

/// Versions of Espalier and of what it was built with, a line each.
std::string version_text();

}  // namespace espalier
