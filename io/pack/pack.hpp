// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "io/file.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {

struct PackProgress {
  Index bytes = 0;      ///< bytes of the files that are packed
  Index all_bytes = 0;  ///< bytes of all files; 0: unknown
  Index num_tokens = 0;
  bool is_survey = false;  ///< this is the first pass, which chooses the validation documents; a second one packs
};

struct PackOptions {
  std::string document_separator = {};  ///< is kept at the end of each document; empty: every file is one document
  double validation_fraction = 0;
  std::uint64_t seed = 0;     ///< for the choice of validation documents
  std::string key = {};       ///< inputs are JSON lines, with a document under this key; empty: plain text
  TokenId document_end = -1;  ///< is appended to each document; -1: nothing is
  bool skip_bad = false;      ///< leaves out lines that are not UTF-8 or have no text under the key: else an error
  bool allow_binary = false;  ///< packs any bytes; else zero bytes and marks of other file formats are refused, too
  bool add_special_tokens = false;  ///< the tokenizer's, such as begin and end of text, around each document
  Index num_threads = 0;            ///< threads that encode; 0: one for each core
  std::chrono::milliseconds journal_interval = std::chrono::seconds(10);  ///< the most work that a kill loses
  std::function<void(const PackProgress&)> progress = {};                 ///< called after each block of documents
};

struct PackSummary {
  Index num_files = 0;
  Index num_documents = 0;             ///< documents with text
  Index num_validation_documents = 0;  ///< of these, those that validate as a whole
  Index num_cut_documents = 0;         ///< of these, those whose end validates, and whose beginning trains
  Index num_bad_lines = 0;             ///< bad lines that were left out
  std::string first_bad_line = {};     ///< where it stands and what is wrong with it
  Index text_bytes = 0;
  Index resumed_bytes = 0;  ///< of these, bytes that an earlier, killed process had packed
  Index train_tokens = 0;
  Index validation_tokens = 0;
  std::vector<std::string> warnings = {};  ///< one or two sentences each, where the text contradicts the options

  double validation_share() const {
    return static_cast<double>(validation_tokens) / static_cast<double>(train_tokens + validation_tokens);
  }
};

/// Packs text into a token file for training and, with a validation fraction, one for validation; the fraction
/// and the path go together. Files may be gzip or zstd; "-" alone is standard input. A document is encoded whole, up to
/// 4 MiB; a longer one is cut behind lines. Which documents validate: ValidationSplit, for which the text is read
/// twice. The memory needed does not depend on the sizes of files, documents and lines, nor the output on the number of
/// threads. What a process has left that was killed or failed is continued (PackJournal).
/// @throws Error, and nothing is left but where there was a journal: (data) for what is no text, or not enough to have
/// some on each side, (usage) for an output that is an input or the other output, (write) for one that is no regular
/// file.
PackSummary pack_text(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
                      const Path& validation_output, const PackOptions& options);

/// May the token files be written there? Nothing that is written may be what is read, or be written twice; and only
/// token files are replaced.
/// @param validation_output empty: none
/// @throws Error: (usage), (write)
void check_pack_outputs(const std::vector<Path>& files, const Path& output, const Path& validation_output);

/// @throws Error (usage) unless the fraction is at least 0 and less than 1, and above 0 just where there is a file
void check_validation_fraction(double fraction, const Path& validation_output);

}  // namespace espalier
