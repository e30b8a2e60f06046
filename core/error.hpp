// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

/// How the command ends; documented in docs/errors.md, and in a line each by exit_meanings().
enum class ExitCode : int {
  ok = 0,
  defect = 1,         ///< a mistake of Espalier's own: an exception that is no Error
  usage = 2,          ///< bad command line or config
  data = 3,           ///< bad token file
  checkpoint = 4,     ///< bad checkpoint
  numerical = 5,      ///< a loss or gradient that is not finite, a failed verification
  communication = 6,  ///< a failed or late message
  memory = 7,         ///< over the memory budget
  write = 8,          ///< cannot write
  stopped = 75,       ///< stopped on request after a saved checkpoint: start again
  no_progress = 93    ///< restarting will not help
};

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
/// All codes, in their order.
const std::vector<ExitMeaning>& exit_meanings();

/// One error block: what happened, where, the value found, the value wanted, what to do. Empty lines are left out.
struct ErrorReport {
  std::string what;
  std::string where = {};
  std::string got = {};
  std::string wanted = {};
  std::string todo = {};
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, ErrorReport report);
  ExitCode code() const { return code_; }
  const ErrorReport& report() const { return report_; }

 private:
  ExitCode code_;
  ErrorReport report_;
};

/// The block as text, one labelled line a field.
std::string to_text(const ErrorReport& report);

/// Any exception as an Error: memory that was not to be had (std::bad_alloc, Kokkos' words for it) with
/// ExitCode::memory, a broken assertion (std::logic_error) as a defect, an Error as it is, std::system_error by its
/// code (usage, memory or write) where that is known, all others with `otherwise`.
Error error_from(const std::exception& error, ExitCode otherwise);

namespace impl {
[[noreturn]] void assertion_failed(const char* condition, const std::string& message, const std::source_location& at);
}

}  // namespace espalier

/// Our own mistakes: says the broken condition and the place. Users' mistakes throw espalier::Error instead.
#define ESPALIER_ASSERT(condition, message)                                                     \
  do {                                                                                          \
    if (!(condition))                                                                           \
      ::espalier::impl::assertion_failed(#condition, message, std::source_location::current()); \
  } while (false)
