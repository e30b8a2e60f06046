// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"
#include "io/own_output.hpp"

namespace espalier {

/// Where an output is written before it is complete: PATH.partial.
Path partial_file_path(Path path);

/// An output that is written piece by piece. It appears under its name only by finish(), complete and on disk, and
/// replaces what was there; without finish() it leaves nothing behind. One process at a time writes a name. What a
/// killed one left is replaced. Ask require_own_output() before.
/// @throws Error (write) where another process writes it now, where a file of another kind stands at the partial path,
/// and where the system refuses.
class PartialFile {
 public:
  /// A link at `path` is followed.
  PartialFile(const Path& path, const OutputMark& mark);
  /// Resumes what a killed writer has left, behind its first `kept_bytes`.
  PartialFile(const Path& path, const OutputMark& mark, std::uint64_t kept_bytes);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();

  void write(const void* data, std::size_t size) { file_.write(data, size); }
  void write_at(std::uint64_t offset, const void* data, std::size_t size) { file_.write_at(offset, data, size); }
  void sync() { file_.sync(); }
  void finish();
  /// What is written stays under the partial path, for a later writer.
  void keep() { finished_ = true; }
  const Path& path() const { return path_; }

 private:
  Path path_;
  Path temporary_;
  OutputFile file_;
  FileDescriptor lock_;  // on the temporary file: held by the one who writes it
  bool finished_ = false;
};

}  // namespace espalier
