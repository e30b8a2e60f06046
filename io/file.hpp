// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace espalier {

using Path = std::filesystem::path;

/// What the operating system said: "No space left on device (errno 28)".
std::string system_message(int error_number);

/// ExitCode::write with the operating system's reason and what to do about it.
[[noreturn]] void throw_write_error(const std::string& what, const Path& path, int error_number);

/// An owned file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int release();

 private:
  int descriptor_ = -1;
};

/// A file that did not exist before: written through write(2), every call checked. Follows no symbolic link.
class OutputFile {
 public:
  explicit OutputFile(const Path& path) : OutputFile(path, path) {}
  /// Errors name `called`: what the user asked for, where the file is a step on the way to that.
  OutputFile(const Path& path, Path called);
  /// One that an earlier process has written in part.
  OutputFile(FileDescriptor file, Path called) : called_(std::move(called)), file_(std::move(file)) {}
  /// Forgets what lies behind so many bytes, and writes from there on.
  void continue_at(std::uint64_t bytes);
  void write(const void* data, std::size_t size);
  void write_at(std::uint64_t offset, const void* data, std::size_t size);
  void sync();
  void sync_and_close();
  int descriptor() const { return file_.get(); }

 private:
  Path called_;
  FileDescriptor file_;
};

/// A regular file, read through pread(2): what cannot be read is an error, where a mapped file would be a signal. It
/// stays open, so that another one may take its name.
class InputFile {
 public:
  /// @throws Error (code) when the file is missing, unreadable or not a regular file; so do the reads.
  InputFile(const Path& path, ExitCode code);
  const Path& path() const { return path_; }
  std::size_t size() const { return size_; }
  /// Fills `data` with so many bytes from `offset` on. A file that has become shorter is an error.
  void read_at(std::size_t offset, void* data, std::size_t bytes) const;
  /// Calls `visit` with the bytes from `begin` to `end` in order, in pieces of `piece_bytes`; the last may be shorter.
  void read_pieces(std::size_t begin, std::size_t end, std::size_t piece_bytes,
                   const std::function<void(std::string_view)>& visit) const;

 private:
  Path path_;
  ExitCode code_;
  FileDescriptor file_;
  std::size_t size_ = 0;
};

/// The text of a regular file. @throws Error (code), also for one of more than `most` bytes (io/input_limits.hpp).
std::string read_file(const Path& path, ExitCode code, std::size_t most = std::numeric_limits<std::size_t>::max());

/// Makes what was written durable.
void sync_file(const Path& path);
void sync_directory(const Path& path);

/// Afterwards the file holds either its old content or all of the new one: temporary file, fsync, rename,
/// fsync.
void write_file_atomically(const Path& path, std::string_view text);

/// Creates the directory and its parents.
void make_directories(const Path& path);

}  // namespace espalier
