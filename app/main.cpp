// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/familiar_words.hpp"
#include "app/gpu_options.hpp"
#include "io/file.hpp"
#include "io/nearest_word.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/launch/runtime.hpp"

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

// The command that the leading words name, as far as they do; they are taken off `reversed`.
const CLI::App& named_command(const CLI::App& app, std::vector<std::string>& reversed, std::string& name) {
  const CLI::App* command = &app;
  for (bool known = true; known && !reversed.empty();) {
    known = false;
    for (const CLI::App* next : command->get_subcommands({}))
      if (!known && next->get_name() == reversed.back()) {
        known = true;
        command = next;
      }
    if (known) {
      name += ' ' + reversed.back();
      reversed.pop_back();
    }
  }
  return *command;
}

// For an option with too many values, or none, the parser reports only its own counts.
std::string usage_text(const CLI::ParseError& error) {
  std::string text = without_bracket_marks(error.what());
  const std::string option = text.substr(0, text.find(':'));
  if (text.find(": At Most 1 required but received ") != std::string::npos)
    return fmt::format("{} is given {} times, wanted once", option, text.substr(text.rfind(' ') + 1));
  if (text.find(": 1 required ") != std::string::npos && text.ends_with(" missing"))
    return option + " has no value";
  return text;
}

// "--run.steps=5" and "--run.steps 5" as the setting that was meant; empty for other words. `next` is the one behind.
std::string meant_setting(std::string_view word, std::string_view next) {
  const std::size_t begin = std::min(word.find_first_not_of('-'), word.size());
  const std::string_view setting = word.substr(begin);
  const std::size_t equals = setting.find('=');
  const std::size_t dot = setting.substr(0, equals).find('.');
  if (begin == 0 || dot == std::string_view::npos || dot == 0 || !std::isalpha(static_cast<unsigned char>(setting[0])))
    return "";
  const bool has_value = equals != std::string_view::npos || next.empty() || next.starts_with('-');
  return has_value ? std::string(setting) : fmt::format("{}={}", setting, next);
}

// Where a command takes settings, with or without a word before them.
void refuse_dashed_settings(const CLI::App& command, const std::string& name, const std::vector<std::string>& words) {
  const bool with_set = command.get_option_no_throw("--set") != nullptr;
  if (!with_set && command.get_option_no_throw("overrides") == nullptr)
    return;
  for (std::size_t i = 0; i < words.size(); ++i)  // reversed
    if (const std::string meant = meant_setting(words[i], i == 0 ? "" : words[i - 1]); !meant.empty())
      throw Error(ExitCode::usage, {.what = "a setting is written without dashes",
                                    .got = words[i],
                                    .wanted = (with_set ? "--set " : "") + meant,
                                    .todo = name + " --help"});
}

// The words of the command line that are options ("--top", "--top=3", "-h"), in their order: those before "--", and no
// negative numbers.
std::vector<std::string> written_options(const std::vector<std::string>& reversed) {
  std::vector<std::string> options;
  for (auto word = reversed.rbegin(); word != reversed.rend() && *word != "--"; ++word)
    if (word->size() > 1 && word->starts_with('-') && !std::isdigit(static_cast<unsigned char>((*word)[1])))
      options.push_back(*word);
  return options;
}

// The first option that the command does not have; empty: none.
std::string unknown_option(const CLI::App& command, const std::vector<std::string>& reversed) {
  for (const std::string& option : written_options(reversed))
    if (command.get_option_no_throw(option.substr(0, option.find('='))) == nullptr)
      return option;
  return "";
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options())
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  return names;
}

// "--output= a.txt", which the parser takes for "--output a.txt".
void refuse_options_with_empty_values(const std::vector<std::string>& reversed) {
  for (const std::string& option : written_options(reversed))
    if (option.starts_with("--") && option.find('=') == option.size() - 1)
      throw Error(ExitCode::usage, {.what = "an option has no value",
                                    .got = option,
                                    .wanted = "a value after the '='",
                                    .todo = "give it a value, or leave it out"});
}

[[noreturn]] void throw_usage(const CLI::App& app, std::vector<std::string> reversed, const CLI::ParseError& error) {
  refuse_gpu_options(reversed);
  std::string name = "espalier";
  const CLI::App& command = named_command(app, reversed, name);
  const std::string next = reversed.empty() ? "" : reversed.back();
  const std::vector<std::string> commands = command_names(command);
  if (!commands.empty() && !next.starts_with("-")) {
    const std::string nearest = nearest_word(next, commands);
    throw Error(ExitCode::usage, {.what = next.empty() ? fmt::format("{} needs a command", name) : "unknown command",
                                  .got = next,
                                  .wanted = fmt::format("one of {}", fmt::join(commands, ", ")),
                                  .todo = !hint_for_command(next).empty() ? hint_for_command(next)
                                          : nearest.empty()               ? name + " --help"
                                                                          : fmt::format("did you mean {}?", nearest)});
  }
  refuse_dashed_settings(command, name, reversed);
  const std::string unknown = unknown_option(command, reversed);
  const std::string hint = unknown.starts_with("--") ? hint_for_option(unknown) : "";
  const std::string nearest =
      hint.empty() && unknown.starts_with("-") ? nearest_word(unknown, option_names(command)) : "";
  const std::string advice =
      (nearest.empty() ? hint.empty() ? "" : hint + "; " : fmt::format("did you mean {}? ", nearest)) + name +
      " --help";
  if (!unknown.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    throw Error(ExitCode::usage, {.what = "unknown option", .got = unknown, .todo = advice});
  throw Error(ExitCode::usage, {.what = usage_text(error), .todo = advice});
}

// "train", "bench step".
std::string chosen_command(const CLI::App& app) {
  std::string name;
  for (const CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += (name.empty() ? "" : " ") + command->get_name();
  }
  return name;
}

// First of all: ranks of different commands would wait for each other in unlike collectives.
void require_same_command(const Communicator& world, const std::string& command) {
  const std::string wanted = broadcast_text(world, command, 0);
  attempt_together(world, ExitCode::usage, [&] {
    if (command != wanted)
      throw Error(ExitCode::usage, {.what = "the ranks were not started in the same way",
                                    .got = "espalier " + command,
                                    .wanted = fmt::format("espalier {}, as on rank 0", wanted),
                                    .todo = "start the same command on all ranks"});
  });
}

void parse(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> arguments = arguments_for_us(argc, argv);
  refuse_options_with_empty_values(arguments);
  try {
    app.parse(bracket_arguments(arguments));
  } catch (const CLI::ParseError& error) {
    throw_usage(app, arguments, error);
  }
}

int run(CLI::App& app, Chosen& chosen, int& argc, char**& argv) {
  try {
    parse(app, argc, argv);
  } catch (const Error&) {
    if (launched_rank().size == 1)
      throw;
    // All ranks find the same mistake: the job reports it once.
    const std::exception_ptr error = std::current_exception();
    return run_job(argc, argv, [&](Runtime&) -> int { std::rethrow_exception(error); });
  }
  if (chosen.needs_runtime) {
    hold_stop_requests();  // from the threads of MPI and OpenMP, for good
    chosen.launching =
        std::make_unique<EndAtStopRequest>(chosen.resumes ? std::optional(ExitCode::stopped) : std::nullopt);
    return run_job(argc, argv, [&](Runtime& runtime) {
      if (!chosen.resumes) {
        chosen.launching.reset();
        release_stop_requests();
      }
      if (!runtime.warning().empty())
        note_to_stderr("espalier: warning: " + runtime.warning());
      require_same_command(runtime.world(), chosen_command(app));
      return chosen.action(&runtime);
    });
  }
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
      "Espalier trains transformer language models on many ranks.\n\n"
      "  espalier data pack --output train.bin TEXT...      makes a token file\n"
      "  mpiexec -n 4 espalier train CONFIG.toml            trains, or resumes\n"
      "  espalier generate --checkpoint RUN --prompt TEXT   generates text",
      "espalier");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  Chosen chosen;
  add_train(app, chosen);
  add_plan(app, chosen);
  add_diagnose(app, chosen);
  add_report(app, chosen);
  add_verify(app, chosen);
  add_evaluate(app, chosen);
  add_generate(app, chosen);
  add_data(app, chosen);
  add_checkpoint(app, chosen);
  add_bench(app, chosen);
  add_help(app, chosen);
  keep_brackets(app);
  take_home_paths(app);
  if (wants_text_only(argc, argv)) {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& request) {
      return launched_rank().rank == 0 ? app.exit(request) : 0;
    } catch (const CLI::ParseError&) {
      if (argc == 1) {
        std::fputs(app.help().c_str(), stdout);
        return static_cast<int>(ExitCode::usage);
      }                       // else the same mistake is found and reported below
    } catch (const Error&) {  // so is this one
    }
  }
  try {
    return run(app, chosen, argc, argv);
  } catch (const std::exception& exception) {
    if (std::ferror(stdout) != 0)
      return 0;  // reported below
    const Error error = error_from(exception, ExitCode::defect);
    if (read_launch_facts(process_environment).local_rank == 0) {  // before MPI all ranks of a host find the same
      std::fflush(stdout);                                         // else the error may stand within a line of it
      std::fprintf(stderr, "espalier: error: %s\n", error.what());
    }
    return static_cast<int>(error.code());
  }
}

// A stream that was closed by who started us (>&-) has a number that the next opened file would get, and with it all
// that is printed. In its place stands one that cannot be written.
void hold_closed_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(standard, F_GETFD) < 0 && errno == EBADF) [[maybe_unused]]
      const int held = ::open("/dev/null", O_RDONLY);  // the lowest that is free: this one
}

// An answer that was sent to a full disk is none. Behind another error it is that one that counts.
int with_output_written(int exit_code) {
  errno = 0;
  if (exit_code != 0 || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0))
    return exit_code;
  const Error error(ExitCode::write, {.what = "cannot write the output",
                                      .where = "standard output",
                                      .got = errno == 0 ? "a write that failed" : system_message(errno),
                                      .todo = "free some space there, or send the output to another place"});
  std::fprintf(stderr, "espalier: error: %s\n", error.what());
  return static_cast<int>(error.code());
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::hold_closed_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is a write that fails, and is reported
  return espalier::with_output_written(espalier::command(argc, argv));
}
