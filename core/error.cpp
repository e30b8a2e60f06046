// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "core/printable_text.hpp"

namespace espalier {
namespace {

// Later lines of what happened stand further right than the labels below it, later lines of a field below its first: a
// value with a newline in it cannot pass for a field.
constexpr std::size_t columns_of_what = 4;
constexpr std::size_t columns_of_field = 10;

// A broken assertion, whose report is kept apart from its text.
class BrokenAssertion : public std::logic_error {
 public:
  explicit BrokenAssertion(ErrorReport report) : std::logic_error(to_text(report)), report_(std::move(report)) {}
  const ErrorReport& report() const { return report_; }

 private:
  ErrorReport report_;
};

// What the operating system refused, where the place that asked had no words of its own for it.
Error system_error_from(const std::system_error& error, ExitCode otherwise) {
  const auto* const file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  std::string where = file == nullptr ? "" : file->path1().string();
  if (file != nullptr && !file->path2().empty())
    where += ", " + file->path2().string();
  const auto report = [&](const char* what, const char* todo) {
    return ErrorReport{.what = what,
                       .where = where,
                       .got = fmt::format("{} (errno {})", error.code().message(), error.code().value()),
                       .todo = todo};
  };
  const bool is_errno = error.code().category() == std::generic_category() ||
                        error.code().category() == std::system_category();  // a stream has numbers of its own
  switch (is_errno ? error.code().value() : EIO) {
    case EAGAIN:
    case ENOMEM:
      return {ExitCode::memory, report("the system has no memory or no thread left for this process",
                                       "end other processes, or raise the limits of this one (ulimit -a)")};
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case EINVAL:
    case EISDIR:
    case EEXIST:
    case ENAMETOOLONG:
      if (file == nullptr)
        return {otherwise, {.what = error.what()}};
      return {otherwise == ExitCode::defect ? ExitCode::usage : otherwise,
              report("a path cannot be used",
                     where.empty() ? "start in a directory that exists and that you may read"
                                   : "check the path, and that of the working directory, and their permissions")};
    default:
      return {ExitCode::write, report("the system refused to read or write",
                                      "check free space, quota and limits (df, ulimit -a), or use another directory")};
  }
}

bool is_out_of_memory(const std::exception& error) {
  // Kokkos says so in words only, in other types from version to version. An absurd size is a length_error.
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const std::length_error*>(&error) != nullptr ||
         std::string_view(error.what()).find("failed to allocate memory") != std::string_view::npos;
}

}  // namespace

const std::vector<ExitMeaning>& exit_meanings() {
  static const std::vector<ExitMeaning> meanings = {
      {ExitCode::ok, "done"},
      {ExitCode::defect, "a defect of Espalier"},
      {ExitCode::usage, "bad command line, config or environment"},
      {ExitCode::data, "bad input"},
      {ExitCode::checkpoint, "bad checkpoint"},
      {ExitCode::numerical, "a loss or gradient that is not finite"},
      {ExitCode::communication, "a message failed or was late"},
      {ExitCode::memory, "too little memory"},
      {ExitCode::write, "cannot write"},
      {ExitCode::stopped, "stopped on request after a saved checkpoint: run the same command again"},
      {ExitCode::no_progress, "four launches in a row have saved no checkpoint: do not requeue"}};
  return meanings;
}

std::string to_text(const ErrorReport& report) {
  std::string text = printable_block(report.what, columns_of_what);
  const auto line = [&](const char* label, const std::string& value) {
    if (!value.empty())
      text += fmt::format("\n  {:<8}{}", label, printable_block(value, columns_of_field));
  };
  line("where:", report.where);
  line("got:", report.got);
  line("wanted:", report.wanted);
  line("do:", report.todo);
  return text;
}

namespace {
// Without the trace that Kokkos appends, or regrets to lack.
std::string first_lines_of(const std::string& text) {
  const std::string_view before = std::string_view(text).substr(0, text.find("Traceback"));
  const std::size_t end = before.find_last_not_of(" \n");
  return std::string(before.substr(0, end == before.npos ? 0 : end + 1));
}
}  // namespace

Error error_from(const std::exception& error, ExitCode otherwise) {
  if (const auto* const own = dynamic_cast<const Error*>(&error))
    return *own;
  if (is_out_of_memory(error))
    return {ExitCode::memory,
            {.what = "this machine is out of memory",
             .got = first_lines_of(error.what()),
             .todo = "raise the memory limit (`ulimit -v`, or that of the batch job), or free memory; for training, "
                     "use a smaller model, a smaller batch or more ranks"}};
  if (const auto* const system = dynamic_cast<const std::system_error*>(&error))
    return system_error_from(*system, otherwise);
  if (const auto* const broken = dynamic_cast<const BrokenAssertion*>(&error))
    return {ExitCode::defect, broken->report()};
  const bool is_defect = dynamic_cast<const std::logic_error*>(&error) != nullptr;
  return {is_defect ? ExitCode::defect : otherwise, {.what = error.what()}};
}

Error::Error(ExitCode code, ErrorReport report)
    : std::runtime_error(to_text(report)), code_(code), report_(std::move(report)) {}

void impl::assertion_failed(const char* condition, const std::string& message, const std::source_location& at) {
  throw BrokenAssertion({.what = message,
                         .where = fmt::format("{}:{} ({})", at.file_name(), at.line(), at.function_name()),
                         .wanted = condition,
                         .todo = "this is a bug in Espalier; please report it with the command line and config"});
}

}  // namespace espalier
