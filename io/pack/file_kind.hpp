// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/file.hpp"

namespace espalier {

/// What a file is that is neither plain text nor tokens, and what to do with it.
struct FileKind {
  std::string name;  ///< "a gzip archive"
  std::string todo;
};

/// The first bytes of a file, as many as the kinds below are known by.
std::string first_bytes(const InputFile& file);

/// By the mark at the beginning: archives, arrays and tables of other programs, indices, UTF-16. nullopt: no known one.
std::optional<FileKind> marked_kind(std::string_view first_bytes);

/// Text in the syntax of a program, whose marks and field names would become part of the text: JSON, HTML, XML.
std::optional<FileKind> marked_up_kind(std::string_view first_bytes);

/// Bytes that were taken for uint16 tokens, and have the shape of something else: 32 or 64 bits wide, high byte first,
/// text, nothing but zeros. Looks at pieces all over the file.
std::optional<FileKind> kind_beside_uint16(const InputFile& file);

}  // namespace espalier
