// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "core/scalars.hpp"

namespace espalier {

/// The largest number of anything that is only counted.
constexpr Index largest_count = Index{1} << 50;

/// Accepts whole numbers from `min` to `max`; help and message show the range.
CLI::Validator between(Index min, Index max);
CLI::Validator at_least(Index min);  ///< and at most largest_count

/// Finite numbers from `min` to `max`.
CLI::Validator real_between(double min, double max);

/// Beside the answer, which goes to standard output.
void note_to_stderr(const std::string& text);

/// @throws Error (usage) for an option whose value is empty, as of a shell variable that is not set.
void refuse_empty_values(const CLI::App& command);

/// Lays help out in 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace espalier
