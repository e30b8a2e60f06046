// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "core/scalars.hpp"
#include "io/file.hpp"

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

/// Calls `visit` with the documents of a file in order; an empty separator: the whole file is one. Keeps a piece of the
/// file in memory, however long a document or a line is. @returns how often the separator occurs.
Index for_each_document(const InputFile& file, const std::string& separator,
                        const std::function<void(const Document&)>& visit);

}  // namespace espalier
