// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "io/pack/documents.hpp"
#include "io/pack/json_text_scanner.hpp"
#include "io/pack/spool_file.hpp"
#include "io/pack/text_parts.hpp"

namespace espalier {

/// A place in an uncompressed text.
struct TextPosition {
  Index offset = 0;
  Index line = 1;                ///< the line at `offset`; blocks of plain text do not count it
  Index offset_in_document = 0;  ///< bytes of the long document at `offset` that are packed already
};

struct LongDocument {
  Document document;
  ReadAt read;  ///< until the next block is read
};

/// A part of a text that is packed at once: whole documents, or lines with one each, or one long document.
struct TextBlock {
  std::string bytes;
  std::vector<Document> documents;  ///< of plain text: offsets in `bytes`
  std::optional<LongDocument> long_document;
  JsonFault fault;     ///< of one line that is too long to be kept
  TextPosition begin;  ///< of this block
  TextPosition end;    ///< of the next one
};

/// Reads a text block by block. What the blocks are depends on the text alone. Keeps about whole_document_bytes.
class TextReader {
 public:
  virtual ~TextReader() = default;
  /// @returns false at the end
  virtual bool next(TextBlock& block) = 0;
  virtual Index num_separators() const { return 0; }
  /// The first bytes of the text; ask before next().
  virtual std::string_view first_bytes() = 0;
};

/// @param source at `begin`  @param key of JSON lines; empty: plain text with this separator  @param directory for what
/// is too long for memory and not in a file that can be read again
std::unique_ptr<TextReader> read_text(ByteSource& source, const TextPosition& begin, const std::string& key,
                                      const std::string& separator, const Path& directory);

}  // namespace espalier
