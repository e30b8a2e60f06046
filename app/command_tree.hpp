// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace espalier {

// The command line as data: what --help, the man page and completion are written from.

/// An option, or an argument without a name.
struct OptionText {
  std::vector<std::string> names;  ///< "--help", "-h"; of an argument its word
  bool is_argument = false;
  std::string type;  ///< "INT", "FILE.html"; empty: a flag
  bool is_required = false;
  bool is_repeated = false;
  std::vector<std::string> choices;  ///< the only values that it takes; empty: any
  std::string description;           ///< with range, choices, and options that do not go together with it
};

/// A command of the tree: "" is the program, then "train", "data", "data pack".
struct CommandText {
  std::string path;
  const CLI::App* command = nullptr;
  std::vector<std::string> commands;  ///< below it
  std::vector<OptionText> options;
};

OptionText describe_option(const CLI::Option& option);

/// All commands, each before those below it.
std::vector<CommandText> describe_commands(const CLI::App& app);

/// The script that `espalier completion` prints for "bash" or "zsh".
std::string completion_script(const std::vector<CommandText>& commands, const std::string& shell);

/// The page espalier(1), in the language of man.
std::string man_page(const std::vector<CommandText>& commands);

}  // namespace espalier
