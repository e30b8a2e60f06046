// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// The largest number of anything that is only counted.
constexpr Index largest_count = Index{1} << 50;

/// Accepts whole numbers from `min` to `max`; help and message show the range.
CLI::Validator between(Index min, Index max);
CLI::Validator at_least(Index min);  ///< and at most largest_count

/// Finite numbers from `min` to `max`.
CLI::Validator float_between(double min, double max);

/// An option for a list that takes one value each time it is given, and so leaves what follows to others.
CLI::Option& one_value_each(CLI::Option& option);

/// Beside the answer, which goes to standard output.
void note_to_stderr(const std::string& text);

/// @throws Error (usage) for an option whose value is empty, as of a shell variable that is not set.
void refuse_empty_values(const CLI::App& command);

/// CLI11 takes a value in brackets for a list, and takes the brackets off: from the pattern "[0-9]" of an option that
/// may have several values. Arguments from bracket_arguments() keep theirs in all options of `app` and its commands.
std::vector<std::string> bracket_arguments(std::vector<std::string> arguments);
void keep_brackets(CLI::App& app);

/// An argument as the user has written it.
std::string without_bracket_marks(const std::string& text);

/// Options of this command and of those below it take `~/...` (io/home_path.hpp): all with a value but --prompt,
/// --stop and --document-separator.
void take_home_paths(CLI::App& command);

/// Lays help out in 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace espalier
