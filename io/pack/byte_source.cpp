// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/byte_source.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/pack/compressed_source.hpp"

namespace espalier {
namespace {

class FileSource : public ByteSource {
 public:
  explicit FileSource(const Path& path) : file_(path, ExitCode::data) {}
  std::size_t read(char* data, std::size_t size) override {
    size = std::min(size, file_.size() - at_);
    file_.read_at(at_, data, size);
    at_ += size;
    return size;
  }
  void skip(Index bytes) override {
    if (static_cast<std::size_t>(bytes) > file_.size() - at_)
      ByteSource::skip(bytes);
    at_ += static_cast<std::size_t>(bytes);
  }
  Index file_bytes() const override { return static_cast<Index>(at_); }
  const InputFile* plain_file() const override { return &file_; }

 private:
  InputFile file_;
  std::size_t at_ = 0;
};

class StandardInput : public ByteSource {
 public:
  std::size_t read(char* data, std::size_t size) override {
    std::size_t done = std::min(size, begin_.size());
    std::memcpy(data, begin_.data(), done);
    begin_.erase(0, done);
    while (done < size) {
      const ssize_t got = ::read(STDIN_FILENO, data + done, size - done);
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0)
        throw Error(ExitCode::data, {.what = "cannot read standard input", .got = system_message(errno)});
      if (got == 0)
        break;
      done += static_cast<std::size_t>(got);
    }
    bytes_ += static_cast<Index>(done);
    return done;
  }
  Index file_bytes() const override { return bytes_; }

  // These bytes have been read, and come again.
  void put_back(std::string_view bytes) {
    begin_ = bytes;
    bytes_ -= static_cast<Index>(bytes.size());
  }

 private:
  std::string begin_;
  Index bytes_ = 0;
};

}  // namespace

void ByteSource::skip(Index bytes) {
  std::string piece(std::size_t{1} << 16, '\0');
  while (bytes > 0) {
    const std::size_t got = read(piece.data(), std::min(piece.size(), static_cast<std::size_t>(bytes)));
    if (got == 0)
      throw Error(ExitCode::data, {.what = "a text has become shorter since it was packed in part"});
    bytes -= static_cast<Index>(got);
  }
}

std::unique_ptr<ByteSource> open_bytes(const Path& path) {
  char bytes[4];
  if (!is_standard_input(path)) {
    auto file = std::make_unique<FileSource>(path);
    const std::size_t size = std::min(sizeof(bytes), file->plain_file()->size());
    file->plain_file()->read_at(0, bytes, size);
    return uncompressed({bytes, size}, std::move(file), path);
  }
  auto input = std::make_unique<StandardInput>();
  const std::size_t size = input->read(bytes, sizeof(bytes));
  input->put_back({bytes, size});
  return uncompressed({bytes, size}, std::move(input), input_name(path));
}

}  // namespace espalier
