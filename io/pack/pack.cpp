// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/own_output.hpp"
#include "io/pack/byte_source.hpp"
#include "io/pack/packer.hpp"
#include "io/partial_file.hpp"
#include "io/tokens/token_file.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

void check_options(const std::vector<Path>& files, const PackOptions& options, const Path& validation_output) {
  if (std::ranges::any_of(files, is_standard_input) && !validation_output.empty())
    throw Error(ExitCode::usage, {.what = "standard input cannot be split for validation",
                                  .got = "--validation, which reads a text twice",
                                  .wanted = "the input - only without --validation",
                                  .todo = "write it to a file first"});
  const bool has_separator = !options.document_separator.empty();
  if (!options.key.empty() && (has_separator || options.allow_binary))
    throw Error(ExitCode::usage,
                {.what = "this option works only with plain text",
                 .got = has_separator ? "--document-separator with --key" : "--allow-binary with --key",
                 .wanted = "--key alone: each JSON line is a document of text",
                 .todo = "leave one of them out"});
  check_validation_fraction(options.validation_fraction, validation_output);
}

}  // namespace

PackSummary pack_text(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
                      const Path& validation_output, const PackOptions& options) {
  check_options(files, options, validation_output);
  check_pack_outputs(files, output, validation_output);
  return Packer(files, tokenizer, output, validation_output, options).run();
}

void check_pack_outputs(const std::vector<Path>& files, const Path& output, const Path& validation_output) {
  const auto refuse_output = [](const Path& path, std::string what, std::string got) {
    throw Error(ExitCode::usage, {.what = std::move(what),
                                  .where = path.string(),
                                  .got = std::move(got),
                                  .wanted = "different names for --output and --validation",
                                  .todo = "espalier data pack --output train.bin --validation val.bin ..."});
  };
  if (files.size() > 1 && std::ranges::any_of(files, is_standard_input))
    throw Error(ExitCode::usage, {.what = "standard input cannot be packed together with files",
                                  .got = counted(std::ssize(files), "input"),
                                  .wanted = "only the input -",
                                  .todo = "write it to a file first"});
  std::vector<Path> written;
  for (const Path& path : {output, validation_output}) {
    if (path.empty() && !written.empty())
      continue;
    if (path.filename().empty())
      refuse_output(path, "a token file has no name", "a directory, or nothing");
    std::error_code ignored;  // a folder that we may not search: opening the file will say so
    for (const char* const more : {"", ".documents", ".conversations", ".journal"}) {
      const Path name = more[0] == '\0' ? path : followed(path) += more;
      for (const Path& either : {name, partial_file_path(followed(name))})
        written.push_back(std::filesystem::weakly_canonical(std::filesystem::absolute(either), ignored));
    }
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (std::find(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(i), written[i]) !=
        written.begin() + static_cast<std::ptrdiff_t>(i))
      refuse_output(written[i], "two token files would be written to one name", "the same file is given twice");
    for (const Path& file : files) {
      std::error_code missing;
      if (std::filesystem::equivalent(written[i], file, missing))
        refuse_output(written[i], "the output would replace a text to pack", "a name among the inputs");
    }
  }
  for (const Path& path : {output, validation_output})
    if (std::error_code missing; path == "-" || std::filesystem::exists(path, missing))
      require_own_output(path, token_file_mark);
}

void check_validation_fraction(double fraction, const Path& validation_output) {
  if (!(fraction >= 0 && fraction < 1))
    throw Error(ExitCode::usage, {.what = "validation fraction out of range",
                                  .got = fmt::format("{}", fraction),
                                  .wanted = "at least 0, less than 1",
                                  .todo = "espalier data pack --validation val.bin --validation-fraction 0.05"});
  if ((fraction > 0) != !validation_output.empty())
    throw Error(ExitCode::usage, {.what = "a validation file and a validation fraction go together",
                                  .got = fraction > 0 ? fmt::format("a fraction of {} and no file", fraction)
                                                      : fmt::format("{} and no fraction", validation_output.string()),
                                  .wanted = "both, or neither",
                                  .todo = "espalier data pack --validation val.bin --validation-fraction 0.05"});
}

}  // namespace espalier
