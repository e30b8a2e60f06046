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
  Index bytes = 0;      ///< of the files, that are done
  Index all_bytes = 0;  ///< 0: nobody knows
  Index num_tokens = 0;
  bool is_survey = false;  ///< which documents validate is found out; then it begins again
};

struct PackOptions {
  std::string document_separator = {};  ///< stays at the end of its document; empty: every file is one document
  double validation_fraction = 0;
  std::uint64_t seed = 0;     ///< of the choice of validation documents
  std::string key = {};       ///< inputs are JSON lines, with a document under this key; empty: plain text
  TokenId document_end = -1;  ///< goes behind each document; -1: nothing
  bool skip_bad = false;      ///< leaves out lines that are not UTF-8 or have no text under the key: else an error
  bool allow_binary = false;  ///< takes bytes as they are; else zero bytes and marks of other formats are refused, too
  bool add_special_tokens = false;  ///< what the tokenizer puts around a text, around each document
  Index num_threads = 0;            ///< that encode; 0: one a core
  std::chrono::milliseconds journal_interval = std::chrono::seconds(10);  ///< what a kill costs at most
  std::function<void(const PackProgress&)> progress = {};                 ///< called every so many documents
};

struct PackSummary {
  Index num_files = 0;
  Index num_documents = 0;             ///< with text
  Index num_validation_documents = 0;  ///< among them, whole ones
  Index num_cut_documents = 0;         ///< whose end validates
  Index num_bad_lines = 0;             ///< that were left out
  std::string first_bad_line = {};     ///< where it is and what is wrong
  Index text_bytes = 0;
  Index resumed_bytes = 0;  ///< of them, that an earlier, killed process has packed
  Index train_tokens = 0;
  Index validation_tokens = 0;
  std::vector<std::string> warnings = {};  ///< where the text contradicts the options, a sentence or two each

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

}  // namespace espalier
