// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/command_line.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <type_traits>

#include "app/command_tree.hpp"
#include "app/print.hpp"
#include "core/error.hpp"
#include "io/home_path.hpp"

namespace espalier {
namespace {

constexpr std::size_t help_columns = 80;

template <class Number>
CLI::Validator in_range(Number min, Number max, const std::string& range) {
  return {[=](const std::string& text) {
            Number number{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
            const bool good =
                error == std::errc() && end == text.data() + text.size() && number >= min && number <= max;
            const char* const kind = std::is_integral_v<Number> ? ", a whole number" : "";
            return good ? std::string() : fmt::format("got {}, wanted {}{}", text, range, kind);
          },
          range};
}

constexpr char bracket_mark = '\x1f';  // before a bracket that belongs to the value

// Words of `text` in lines of at most `columns`.
std::string wrapped(const std::string& text, std::size_t columns) {
  std::string result;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; column += word.size()) {
    if (column > 0 && column + 1 + word.size() > columns) {
      result += '\n';
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    result += word;
  }
  return result;
}

}  // namespace

CLI::Validator between(Index min, Index max) { return in_range(min, max, fmt::format("{} to {}", min, max)); }
CLI::Validator at_least(Index min) { return in_range(min, largest_count, fmt::format("at least {}", min)); }
CLI::Validator float_between(double min, double max) { return in_range(min, max, fmt::format("{} to {}", min, max)); }

CLI::Option& one_value_each(CLI::Option& option) {
  return *option.allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void note_to_stderr(const std::string& text) { print_note("{}\n", text); }

void refuse_empty_values(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options())
    if (!option->get_positional() && option->get_items_expected_min() > 0)  // plan --rehearse may stand alone
      for (const std::string& value : option->results())
        if (value.empty())
          throw Error(ExitCode::usage, {.what = "an option has no value",
                                        .where = "espalier " + command.get_name(),
                                        .got = fmt::format("{} \"\"", option->get_name()),
                                        .wanted = option->get_type_name(),
                                        .todo = fmt::format("give it a value, or leave it out (espalier {} --help)",
                                                            command.get_name())});
}

std::vector<std::string> bracket_arguments(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    const std::size_t value = argument.starts_with("--") ? argument.find('=') + 1 : 0;  // 0 without a '=', too
    if (argument.ends_with(']') && argument.substr(value).starts_with('['))
      argument.insert(value, 1, bracket_mark);
  }
  return arguments;
}

void keep_brackets(CLI::App& app) {
  for (CLI::Option* const option : app.get_options())
    if (option->get_items_expected_max() > 0)
      option->transform([](const std::string& text) { return without_bracket_marks(text); }, "");
  for (CLI::App* const command : app.get_subcommands({}))
    keep_brackets(*command);
}

std::string without_bracket_marks(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != bracket_mark || i + 1 == text.size() || text[i + 1] != '[')
      result += text[i];
  return result;
}

void take_home_paths(CLI::App& command) {
  const CLI::Validator home(
      [](std::string& text) {
        text = expand_home(text);
        return std::string();
      },
      "");
  const auto is_text = [](const std::string& name) {
    return name == "--prompt" || name == "--stop" || name == "--document-separator";
  };
  for (CLI::Option* const option : command.get_options())
    if (option->get_items_expected_max() > 0 && !is_text(option->get_name()))
      option->transform(home);
  for (CLI::App* const below : command.get_subcommands({}))
    take_home_paths(*below);
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  const std::string text = CLI::Formatter::make_description(app);
  return text.find("\n\n") == std::string::npos ? wrapped(text, help_columns) + '\n' : text;  // else laid out by hand
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const OptionText text = describe_option(*option);
  return (text.type.empty() ? "" : ' ' + text.type) + (text.is_repeated ? " ..." : "") +
         (text.is_required ? " REQUIRED" : "");
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrapped(describe_option(*option).description, help_columns - get_column_width());
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_display_name(true),
                           wrapped(command->get_description(), help_columns - get_column_width()), get_column_width());
  return out.str();
}

}  // namespace espalier
