// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "app/command_tree.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "io/nearest_word.hpp"

namespace espalier {
namespace {

int help_on(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string path = fmt::format("{}", fmt::join(words, " "));
  std::vector<std::string> known;
  for (const CommandText& command : describe_commands(app)) {
    if (command.path == path) {
      const std::string name = command.path.empty() ? "espalier" : "espalier " + command.path;
      print_answer("{}",
                   command.command->get_formatter()->make_help(command.command, name, CLI::AppFormatMode::Normal));
      return 0;
    }
    if (!command.path.empty())
      known.push_back(command.path);
  }
  const std::string nearest = nearest_word(path, known);
  throw Error(ExitCode::usage, {.what = "there is no such command",
                                .got = path,
                                .wanted = fmt::format("one of {}", fmt::join(known, ", ")),
                                .todo = nearest.empty() ? "espalier --help" : "did you mean " + nearest + "?"});
}

}  // namespace

void add_help(CLI::App& app, Chosen& chosen) {
  struct Arguments {
    std::vector<std::string> words;
    std::string shell;
    bool man = false;
  };
  const auto options = std::make_shared<Arguments>();
  CLI::App* const help = app.add_subcommand("help", "Print the help of a command, or the whole man page");
  help->add_option("command", options->words, "command, such as data pack; default: the list of commands");
  help->add_flag("--man", options->man, "print the source of the man page espalier(1)");
  help->footer(
      "  espalier help data pack\n"
      "  espalier help --man | man -l -");
  help->callback([&app, options, &chosen] {
    chosen.prints_only = true;
    chosen.action = [&app, options](Runtime*) {
      if (!options->man)
        return help_on(app, options->words);
      print_answer("{}", man_page(describe_commands(app)));
      return 0;
    };
  });
  CLI::App* const completion = app.add_subcommand("completion", "Print the script that completes commands in a shell");
  completion->add_option("shell", options->shell, "the shell that completes")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->footer("  source <(espalier completion bash)       # in ~/.bashrc");
  completion->callback([&app, options, &chosen] {
    chosen.prints_only = true;
    chosen.action = [&app, options](Runtime*) {
      print_answer("{}", completion_script(describe_commands(app), options->shell));
      return 0;
    };
  });
}

}  // namespace espalier
