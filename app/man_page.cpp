// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "app/command_tree.hpp"
#include "app/commands.hpp"
#include "core/error.hpp"

namespace espalier {
namespace {

// Text as man shall print it: no dash is a hyphen, and no line a request.
std::string escaped(const std::string& text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text)
    result += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }

// Lines laid out by hand: examples.
std::string as_it_is(const std::string& text) {
  std::string result = ".PP\n.nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    result += escaped(line) + '\n';
  return result + ".fi\n";
}

std::string option_text(const OptionText& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + bold(name);
  return fmt::format(".TP\n{}{}{}\n{}{}\n", names,
                     option.type.empty() || option.is_argument ? "" : " \\fI" + escaped(option.type) + "\\fR",
                     option.is_repeated ? " ..." : "", escaped(option.description),
                     option.is_required ? " (required)" : "");
}

std::string synopsis(const CommandText& command) {
  std::string text = bold("espalier " + command.path);
  if (!command.commands.empty())
    text += " \\fICOMMAND\\fR";
  else
    text += " [\\fIOPTION\\fR]...";
  for (const OptionText& option : command.options)
    if (option.is_argument)
      text += fmt::format(" {}\\fI{}\\fR{}{}", option.is_required ? "" : "[", escaped(option.names.front()),
                          option.is_required ? "" : "]", option.is_repeated ? "..." : "");
  return text;
}

std::string command_text(const CommandText& command) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n{}\n", escaped("espalier " + command.path), synopsis(command),
                                 escaped(command.command->get_description()));
  for (const OptionText& option : command.options)
    if (option.names.back() != "--help")
      text += option_text(option);
  const std::string footer = command.command->get_footer();
  return footer.empty() ? text : text + as_it_is(footer);
}

}  // namespace

std::string man_page(const std::vector<CommandText>& commands) {
  const std::string program = program_text();
  const std::string description = commands.front().command->get_description();
  std::string page = fmt::format(
      ".TH ESPALIER 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nespalier \\- train transformer language models on "
      "clusters\n.SH SYNOPSIS\n{} \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH DESCRIPTION\n{}\n",
      escaped(program.substr(0, program.find(" ("))), bold("espalier"),
      escaped(description.substr(0, description.find('\n'))));
  page += as_it_is(description.substr(description.find("\n\n") + 2));
  page += ".SH OPTIONS\n";
  for (const OptionText& option : commands.front().options)
    page += option_text(option);
  page += ".SH COMMANDS\n";
  for (const CommandText& command : commands)
    if (!command.path.empty())
      page += command_text(command);
  page += ".SH \"EXIT STATUS\"\n";
  for (const auto& [code, meaning] : exit_meanings())
    page += fmt::format(".TP\n{}\n{}\n", static_cast<int>(code), escaped(meaning));
  return page +
         ".SH \"SEE ALSO\"\nThe documents in share/doc/espalier of the installation: config.md has every key of a "
         "config, errors.md\nthe exit codes, running.md the environment variables.\n";
}

}  // namespace espalier
