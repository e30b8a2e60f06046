// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/pack/pack.hpp"
#include "io/pack/text_reader.hpp"
#include "io/tokens/validation_split.hpp"

namespace espalier {

/// A line of JSON lines that gives no text, or one of plain text that is not UTF-8.
struct BadLine {
  Index line = 0;
  JsonFault fault;
};

/// Calls `visit` with the documents of a block in order, each in the text that it lies in.
/// @returns the lines that give none
std::vector<BadLine> for_each_document(const TextBlock& block, const std::string& key,
                                       const std::function<void(std::string_view text, const Document&)>& visit);

/// Plain text without its lines that are not UTF-8, which are added to `bad_lines`.
/// @param line the number of the first one
std::string without_bad_lines(std::string_view text, Index line, std::vector<BadLine>& bad_lines);

/// Documents that go to one file.
struct PackedDocuments {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> ends;  ///< of documents, in tokens
  bool has_text = false;
};

struct PackedBlock {
  PackedDocuments train;
  PackedDocuments validation;
  std::vector<Document> documents;
  Index text_bytes = 0;
  Index num_validation_documents = 0;  ///< whole ones
  Index num_cut_documents = 0;
  std::vector<BadLine> bad_lines;
};

/// Encodes the documents of a block on either side. Several threads may do so at the same time.
/// @param split nullptr: all train
PackedBlock pack_block(const TextBlock& block, const Tokenizer& tokenizer, const PackOptions& options,
                       const ValidationSplit* split);

}  // namespace espalier
