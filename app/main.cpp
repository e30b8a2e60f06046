// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "io/nearest_word.hpp"
#include "parallel/launch_environment.hpp"

namespace espalier {
namespace {

// What Kokkos shall see stays out of our parser.
std::vector<std::string> arguments_for_us(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i)  // CLI11 wants them reversed
    if (!std::string_view(argv[i]).starts_with("--kokkos-"))
      arguments.emplace_back(argv[i]);
  return arguments;
}

bool wants_text_only(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string_view argument = argv[i]; argument == "--help" || argument == "-h" || argument == "--version")
      return true;
  return argc == 1;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({}))
    names.push_back(command->get_name());
  return names;
}

[[noreturn]] void throw_usage(const CLI::App& app, const std::vector<std::string>& reversed,
                              const CLI::ParseError& error) {
  const std::string first = reversed.empty() ? "" : reversed.back();
  const std::vector<std::string> commands = command_names(app);
  if (!first.starts_with("-") && std::find(commands.begin(), commands.end(), first) == commands.end()) {
    const std::string nearest = nearest_word(first, commands);
    throw Error(ExitCode::usage,
                {.what = "unknown command",
                 .got = first,
                 .wanted = fmt::format("one of {}", fmt::join(commands, ", ")),
                 .todo = nearest.empty() ? "espalier --help" : fmt::format("did you mean {}?", nearest)});
  }
  throw Error(ExitCode::usage, {.what = error.what(), .todo = fmt::format("espalier {} --help", first)});
}

void parse(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> arguments = arguments_for_us(argc, argv);
  try {
    app.parse(std::vector<std::string>(arguments));
  } catch (const CLI::ParseError& error) {
    throw_usage(app, arguments, error);
  }
}

int run(CLI::App& app, const Chosen& chosen, int& argc, char**& argv) {
  try {
    parse(app, argc, argv);
  } catch (const Error&) {
    if (launched_rank().size == 1)
      throw;
    // All ranks find the same mistake: the job reports it once.
    const std::exception_ptr error = std::current_exception();
    return run_job(argc, argv, [&](Runtime&) -> int { std::rethrow_exception(error); });
  }
  if (chosen.needs_runtime)
    return run_job(argc, argv, [&](Runtime& runtime) { return chosen.action(&runtime); });
  if (chosen.prints_only)
    return launched_rank().rank == 0 ? chosen.action(nullptr) : 0;
  if (launched_rank().size == 1)
    return chosen.action(nullptr);
  return run_job(argc, argv, [](Runtime& runtime) -> int {
    throw Error(ExitCode::usage, {.what = "this command runs on one process",
                                  .got = fmt::format("{} ranks", runtime.size()),
                                  .todo = "start it without mpiexec, or with one rank"});
  });
}

int command(int argc, char** argv) {
  CLI::App app(
      "Espalier trains transformer language models on a lattice of ranks.\n\n"
      "  espalier data pack --output train.bin TEXT...      text to token file\n"
      "  mpiexec -n 4 espalier train CONFIG.toml            trains, resumes by itself\n"
      "  espalier generate --checkpoint RUN --prompt TEXT   writes text");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  Chosen chosen;
  add_train(app, chosen);
  add_plan(app, chosen);
  add_diagnose(app, chosen);
  add_report(app, chosen);
  add_verify(app, chosen);
  add_generate(app, chosen);
  add_data(app, chosen);
  add_checkpoint(app, chosen);
  add_bench(app, chosen);
  if (wants_text_only(argc, argv)) {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& request) {
      return launched_rank().rank == 0 ? app.exit(request) : 0;
    } catch (const CLI::ParseError&) {
      if (argc == 1) {
        std::fputs(app.help().c_str(), stdout);
        return static_cast<int>(ExitCode::usage);
      }  // else the same mistake is found and reported below
    }
  }
  try {
    return run(app, chosen, argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "espalier: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "espalier: error: %s\n", error.what());
    return static_cast<int>(ExitCode::defect);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) { return espalier::command(argc, argv); }
