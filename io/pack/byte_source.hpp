// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

/// Bytes that come one after the other. Every error is Error(data).
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills `data` with `size` bytes, or with fewer where they end. @returns how many
  virtual std::size_t read(char* data, std::size_t size) = 0;

  /// Passes over so many bytes. @throws Error where there are fewer
  virtual void skip(Index bytes);

  /// Bytes of the file that have been read; fewer than were given out where it is compressed.
  virtual Index file_bytes() const = 0;

  /// The file whose bytes these are, at the same offsets; null where it is compressed or has no name.
  virtual const InputFile* plain_file() const { return nullptr; }
};

/// The bytes of a file; uncompressed where its first bytes say that it is a gzip or zstd file. "-" is standard input.
std::unique_ptr<ByteSource> open_bytes(const Path& path);

/// Standard input, as a path.
inline bool is_standard_input(const Path& path) { return path == "-"; }

/// An input in messages.
inline std::string input_name(const Path& path) { return is_standard_input(path) ? "standard input" : path.string(); }

}  // namespace espalier
