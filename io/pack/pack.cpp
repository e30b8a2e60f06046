// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack.hpp"

#include <algorithm>

#include "io/pack/pack_outputs.hpp"
#include "io/pack/packer.hpp"

namespace espalier {
namespace {

void check_options(const std::vector<Path>& files, const PackOptions& options, const Path& validation_output) {
  if (std::ranges::any_of(files, is_standard_input) && !validation_output.empty())
    throw Error(ExitCode::usage, {.what = "all of standard input is packed for training",
                                  .got = "--validation, for which a text is read twice",
                                  .wanted = "the input - without --validation",
                                  .todo = "write it to a file first"});
  const bool has_separator = !options.document_separator.empty();
  if (!options.key.empty() && (has_separator || options.allow_binary))
    throw Error(ExitCode::usage,
                {.what = "an option is for plain text alone",
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

}  // namespace espalier
