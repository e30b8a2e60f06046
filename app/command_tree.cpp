// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/command_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace espalier {
namespace {

// CLI11 keeps what a value may be behind the type: "TEXT:{a,b}", "INT:1 to 9", "FLOAT:FLOAT in [0 - 1]".
void split_type(const std::string& text, OptionText& option, std::string& range) {
  const std::size_t colon = text.find(':');
  option.type = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (rest.starts_with("{")) {
    const std::string list = rest.substr(1, rest.find('}') - 1);
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      option.choices.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  } else if (const std::size_t in = rest.find(" in ["); in != std::string::npos) {
    range = rest.substr(in + 5, rest.size() - in - 6);
    range.replace(range.find(" - "), 3, " to ");
  } else {
    range = rest;
  }
}

bool names_all(const std::string& text, const std::vector<std::string>& words) {
  return std::ranges::all_of(words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

void add_command(const CLI::App& command, const std::string& path, std::vector<CommandText>& commands) {
  CommandText text;
  text.path = path;
  text.command = &command;
  for (const CLI::App* next : command.get_subcommands({}))
    text.commands.push_back(next->get_name());
  for (const CLI::Option* option : command.get_options())
    text.options.push_back(describe_option(*option));
  commands.push_back(std::move(text));
  for (const CLI::App* next : command.get_subcommands({}))
    add_command(*next, path.empty() ? next->get_name() : path + ' ' + next->get_name(), commands);
}

}  // namespace

OptionText describe_option(const CLI::Option& option) {
  OptionText text;
  text.is_argument = option.get_positional();
  text.is_required = option.get_required();
  text.is_repeated = option.get_expected_max() > 1;
  text.description = option.get_description();
  if (text.is_argument)
    text.names = {option.get_name(true)};
  for (const std::string& name : option.get_snames())
    text.names.push_back('-' + name);
  for (const std::string& name : option.get_lnames())
    text.names.push_back("--" + name);
  std::string range;
  if (option.get_items_expected_max() > 0)
    split_type(option.get_type_name(), text, range);
  if (!range.empty())
    text.description += fmt::format(" ({})", range);
  if (!names_all(text.description, text.choices))
    text.description += fmt::format(": {}", fmt::join(text.choices, ", "));
  std::set<std::string> others;
  for (const CLI::Option* other : option.get_excludes())
    others.insert(other->get_name());
  if (!others.empty())
    text.description += fmt::format("; not with {}", fmt::join(others, ", "));
  return text;
}

std::vector<CommandText> describe_commands(const CLI::App& app) {
  std::vector<CommandText> commands;
  add_command(app, "", commands);
  return commands;
}

}  // namespace espalier
