// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

// All that commands print. Control characters are shown, not sent (core/printable_text.hpp). A write that fails throws
// nothing: main() reports it when the command ends.

namespace espalier {

/// The answer of a command, to standard output.
void print_text(std::string_view text);

/// What is said beside the answer, to standard error.
void print_text_to_stderr(std::string_view text);

/// print_text() of what fmt::format makes of it.
template <class... Arguments>
void print_answer(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// print_text_to_stderr() of what fmt::format makes of it.
template <class... Arguments>
void print_note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_text_to_stderr(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A model's text, written as it comes: harmless on a terminal, elsewhere the very bytes. A piece may end within a
/// character.
class ModelText {
 public:
  ModelText();
  void write(std::string_view piece);
  /// The rest, and the end of the line.
  void finish();

 private:
  bool shows_;           // on a terminal
  std::string pending_;  // the begin of a character
};

}  // namespace espalier
