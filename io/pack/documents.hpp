// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "io/hash.hpp"
#include "io/pack/byte_source.hpp"

namespace espalier {

/// A part of a text file that ends with a separator, or with the file. What has no text (white space, or nothing before
/// its separator) belongs to the document before it.
struct Document {
  Index begin = 0;         ///< bytes of the file
  Index end = 0;           ///< behind its separator
  Index text_begin = 0;    ///< its first byte that is no white space
  Index text_end = 0;      ///< behind the last one before its separator; text_begin in a file without text
  std::uint64_t hash = 0;  ///< of the text, so that copies have the same with and without a separator

  Index size() const { return end - begin; }
  bool has_text() const { return text_end > text_begin; }
};

/// Reads bytes of a text that can be read at any place.
using ReadAt = std::function<void(Index offset, char* data, std::size_t size)>;

/// A document whose end has not been read yet.
class OpenDocument {
 public:
  explicit OpenDocument(Index begin)
      : document_{.begin = begin, .end = begin, .text_begin = begin, .text_end = begin} {}
  void add(std::string_view text);
  bool has_text() const { return document_.has_text(); }
  Document close(Index end);

 private:
  Document document_;
  Hasher hasher_;
  std::string space_;  // behind the text: hashed when more text follows
};

/// Finds the documents of a text that comes in pieces. A piece is kept, however long a document or a line is.
class DocumentSplitter {
 public:
  /// @param separator empty: all is one document  @param visit with the documents in order, each as soon as it is known
  /// that nothing else belongs to it
  DocumentSplitter(std::string separator, std::function<void(const Document&)> visit);
  void add(std::string_view piece);
  void finish();
  Index num_separators() const { return num_separators_; }

 private:
  void hold(Document document);
  void release();

  std::string separator_;
  std::function<void(const Document&)> visit_;
  Index num_separators_ = 0;
  std::string text_;  // not looked at yet
  Index offset_ = 0;  // of text_
  OpenDocument open_ = OpenDocument(0);
  std::optional<Document> held_;  // closed
};

/// All of a text as a document.
Document whole_document(std::string_view text);

/// Calls `visit` with the documents of a text in order. @returns how often the separator occurs.
Index for_each_document(ByteSource& source, const std::string& separator,
                        const std::function<void(const Document&)>& visit);

}  // namespace espalier
