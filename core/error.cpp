// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <fmt/format.h>

#include <new>

namespace espalier {

std::string to_text(const ErrorReport& report) {
  std::string text = report.what;
  const auto line = [&](const char* label, const std::string& value) {
    if (!value.empty())
      text += fmt::format("\n  {:<8}{}", label, value);
  };
  line("where:", report.where);
  line("got:", report.got);
  line("wanted:", report.wanted);
  line("do:", report.todo);
  return text;
}

Error error_from(const std::exception& error, ExitCode otherwise) {
  if (const auto* const own = dynamic_cast<const Error*>(&error))
    return *own;
  // Kokkos says so in words only, in other types from version to version.
  const std::string text = error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      text.find("failed to allocate memory") != std::string::npos)
    return {ExitCode::memory,
            {.what = "this machine has no more memory to give",
             .got = text,
             .todo = "raise the limit of memory (`ulimit -v`, or the batch job's), or free some; where a model is "
                     "trained, a smaller one, a smaller batch or more ranks need less"}};
  const bool is_assertion = dynamic_cast<const std::logic_error*>(&error) != nullptr;
  return {is_assertion ? ExitCode::defect : otherwise, {.what = text}};
}

Error::Error(ExitCode code, ErrorReport report)
    : std::runtime_error(to_text(report)), code_(code), report_(std::move(report)) {}

void impl::assertion_failed(const char* condition, const std::string& message, const std::source_location& at) {
  throw std::logic_error(
      fmt::format("{}\n  where:  {}:{} ({})\n  wanted: {}\n  do:     this is a defect of Espalier; please "
                  "report it with the command line and config",
                  message, at.file_name(), at.line(), at.function_name(), condition));
}

}  // namespace espalier
