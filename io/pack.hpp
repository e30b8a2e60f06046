// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "io/tokenizer.hpp"

namespace espalier {

/// Files named by paths and shell patterns, as canonical paths, sorted; a file reached by several names
/// (patterns, symbolic or hard links) comes once. `exclude` are patterns of file names ("*.dat"), as given or as they
/// are behind links.
/// @throws Error (data) for a path that is missing, a pattern without a match (all of them named), and a directory.
std::vector<Path> expand_inputs(const std::vector<std::string>& patterns, const std::vector<std::string>& exclude = {});

struct PackOptions {
  std::string document_separator = {};  ///< stays at the end of its document; empty: every file is one document
  double validation_fraction = 0;
  std::uint64_t seed = 0;     ///< of the choice of validation documents
  bool allow_binary = false;  ///< files with zero bytes are refused otherwise
};

struct PackSummary {
  Index num_files = 0;
  std::vector<Path> empty_files = {};  ///< among them
  Index num_documents = 0;
  Index num_validation_documents = 0;
  Index text_bytes = 0;
  Index train_tokens = 0;
  Index validation_tokens = 0;
  bool split_inside_documents = false;  ///< few documents: each gave its last lines to validation
};

/// Packs text into a token file for training and, with a validation fraction, one for validation; the fraction
/// and the path go together. Whole documents go to either side by a hash of (seed, text), so that copies of a document
/// stay on one side and adding a file moves no other document; at least one goes, and one stays. With fewer than 50
/// documents that is too coarse: then each gives its tail, from a line start on.
/// @throws Error before anything is written: (data) for what is no text, (usage) for an output that is an input or the
/// other output, (write) for one that is no regular file.
PackSummary pack_text(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
                      const Path& validation_output, const PackOptions& options);

}  // namespace espalier
