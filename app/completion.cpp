// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/command_tree.hpp"

namespace espalier {
namespace {

// "data pack" as the pattern of a case: data/pack.
std::string slashed(std::string path) {
  std::ranges::replace(path, ' ', '/');
  return path;
}

bool takes_a_value(const OptionText& option) { return !option.is_argument && !option.type.empty(); }

// What follows the words typed so far: the command that they name, up to where the cursor is.
std::string find_command(const std::vector<CommandText>& commands, const char* words, const char* first,
                         const char* last) {
  std::vector<std::string> paths;
  for (const CommandText& command : commands)
    if (!command.path.empty())
      paths.push_back((command.path.find(' ') == std::string::npos ? "/" : "") + slashed(command.path));
  return fmt::format(
      "  local command= i\n"
      "  for ((i = {}; i < {}; i++)); do\n"
      "    case \"$command/${{{}[i]}}\" in\n"
      "      {}) command=${{command:+$command/}}${{{}[i]}} ;;\n"
      "    esac\n"
      "  done\n",
      first, last, words, fmt::join(paths, " | "), words);
}

std::string bash_script(const std::vector<CommandText>& commands) {
  std::string script =
      "# Completion of espalier for bash, as `espalier completion bash` prints it.\n"
      "_espalier() {\n" +
      find_command(commands, "COMP_WORDS", "1", "COMP_CWORD") +
      "  local current=${COMP_WORDS[COMP_CWORD]} words=\n"
      "  COMPREPLY=()\n"
      "  case \"$command ${COMP_WORDS[COMP_CWORD - 1]}\" in\n";
  for (const CommandText& command : commands)
    for (const OptionText& option : command.options)
      if (takes_a_value(option))
        for (const std::string& name : option.names)
          script += fmt::format("    \"{} {}\") {} ;;\n", slashed(command.path), name,
                                option.choices.empty()
                                    ? std::string("return")
                                    : fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return",
                                                  fmt::join(option.choices, " ")));
  script += "  esac\n  case $command in\n";
  for (const CommandText& command : commands) {
    std::vector<std::string> words = command.commands;
    for (const OptionText& option : command.options)
      if (!option.is_argument)
        words.insert(words.end(), option.names.begin(), option.names.end());
      else
        words.insert(words.end(), option.choices.begin(), option.choices.end());
    script += fmt::format("    \"{}\") words=\"{}\" ;;\n", slashed(command.path), fmt::join(words, " "));
  }
  return script +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -o bashdefault -F _espalier espalier\n";
}

// As one word of _describe, which ends a name at a colon.
std::string described(const std::string& name, const std::string& description) {
  std::string text;
  for (const char c : fmt::format("{}:{}", name, description))
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + text + "'";
}

std::string zsh_script(const std::vector<CommandText>& commands) {
  std::string script =
      "#compdef espalier\n"
      "# Completion of espalier for zsh, as `espalier completion zsh` prints it.\n"
      "_espalier() {\n" +
      find_command(commands, "words", "2", "CURRENT") +
      "  local -a commands options\n"
      "  case \"$command ${words[CURRENT - 1]}\" in\n";
  for (const CommandText& command : commands)
    for (const OptionText& option : command.options)
      if (takes_a_value(option))
        for (const std::string& name : option.names)
          script += fmt::format("    \"{} {}\") {}; return ;;\n", slashed(command.path), name,
                                option.choices.empty() ? std::string("_files")
                                                       : fmt::format("compadd {}", fmt::join(option.choices, " ")));
  script += "  esac\n  case $command in\n";
  for (const CommandText& command : commands) {
    script += fmt::format("    \"{}\")\n", slashed(command.path));
    std::string names;
    for (const CommandText& next : commands)
      for (const std::string& name : command.commands)
        if (next.path == (command.path.empty() ? name : command.path + ' ' + name))
          names += ' ' + described(name, next.command->get_description().substr(
                                             0, next.command->get_description().find('\n')));
    std::string options;
    for (const OptionText& option : command.options)
      if (!option.is_argument)
        for (const std::string& name : option.names)
          options += ' ' + described(name, option.description);
      else
        for (const std::string& choice : option.choices)
          names += ' ' + described(choice, "");
    script += fmt::format("      commands=({})\n      options=({})\n      ;;\n", names, options);
  }
  return script +
         "  esac\n"
         "  if [[ ${words[CURRENT]} == -* ]]; then _describe -o option options\n"
         "  elif (( $#commands )); then _describe command commands\n"
         "  else _files; fi\n"
         "}\n"
         "if [[ ${funcstack[1]} == _espalier ]]; then _espalier \"$@\"; else compdef _espalier espalier; fi\n";
}

}  // namespace

std::string completion_script(const std::vector<CommandText>& commands, const std::string& shell) {
  return shell == "bash" ? bash_script(commands) : zsh_script(commands);
}

}  // namespace espalier
