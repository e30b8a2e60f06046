// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/byte_source.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <vector>

namespace espalier {
namespace {

using namespace std::string_view_literals;

// What the two formats have in common: compressed bytes are read piece by piece.
class CompressedSource : public ByteSource {
 public:
  CompressedSource(std::unique_ptr<ByteSource> below, Path path) : below_(std::move(below)), path_(std::move(path)) {}
  Index file_bytes() const override { return below_->file_bytes(); }

 protected:
  // The next compressed bytes; empty at their end.
  std::string_view next_input() { return {input_.data(), below_->read(input_.data(), input_.size())}; }
  [[noreturn]] void refuse(const char* format, const std::string& got) const {
    throw Error(ExitCode::data, {.what = fmt::format("a {} file is damaged or cut", format),
                                 .where = fmt::format("{}, before byte {}", path_.string(), file_bytes()),
                                 .got = got,
                                 .wanted = fmt::format("a whole file, as `{} -t` accepts it", format),
                                 .todo = "copy or download it again"});
  }

 private:
  std::unique_ptr<ByteSource> below_;
  Path path_;
  std::vector<char> input_ = std::vector<char>(std::size_t{1} << 17);
};

class GzipSource : public CompressedSource {
 public:
  GzipSource(std::unique_ptr<ByteSource> below, const Path& path) : CompressedSource(std::move(below), path) {
    constexpr int gzip_only = 15 + 16;
    if (::inflateInit2(&stream_, gzip_only) != Z_OK)
      throw std::bad_alloc();
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

  std::size_t read(char* data, std::size_t size) override {
    std::size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) {
        const std::string_view input = next_input();
        if (input.empty() && is_between_members_)
          break;
        if (input.empty())
          refuse("gzip", "the file ends within its data");
        stream_.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(input.data()));  // zlib only reads it
        stream_.avail_in = static_cast<uInt>(input.size());
      }
      for (; is_between_members_ && stream_.avail_in > 0 && *stream_.next_in == 0; --stream_.avail_in)
        ++stream_.next_in;  // zeros that fill a block of a tape, or of a disk
      if (stream_.avail_in == 0)
        continue;
      if (is_between_members_)
        ::inflateReset(&stream_);
      const std::size_t most = std::min(size - done, std::size_t{std::numeric_limits<uInt>::max()});
      stream_.next_out = reinterpret_cast<unsigned char*>(data + done);
      stream_.avail_out = static_cast<uInt>(most);
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      done += most - stream_.avail_out;
      is_between_members_ = result == Z_STREAM_END;
      if (result == Z_MEM_ERROR)
        throw std::bad_alloc();
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        refuse("gzip", stream_.msg == nullptr ? "an unknown error" : stream_.msg);
    }
    return done;
  }

 private:
  z_stream stream_ = {};
  bool is_between_members_ = false;
};

class ZstdSource : public CompressedSource {
 public:
  ZstdSource(std::unique_ptr<ByteSource> below, const Path& path) : CompressedSource(std::move(below), path) {
    if (!stream_)
      throw std::bad_alloc();
  }

  std::size_t read(char* data, std::size_t size) override {
    ZSTD_outBuffer output = {data, size, 0};
    while (output.pos < size) {
      // What a full output left inside comes out first, without more input.
      if (input_.pos == input_.size && !has_more_) {
        const std::string_view input = next_input();
        if (input.empty() && is_between_frames_)
          break;
        if (input.empty())
          refuse("zstd", "the file ends within its data");
        input_ = {input.data(), input.size(), 0};
      }
      const std::size_t result = ::ZSTD_decompressStream(stream_.get(), &output, &input_);
      if (::ZSTD_isError(result) != 0)
        refuse("zstd", ::ZSTD_getErrorName(result));
      is_between_frames_ = result == 0;
      has_more_ = !is_between_frames_ && output.pos == size;
    }
    return output.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_{::ZSTD_createDStream()};
  ZSTD_inBuffer input_ = {};
  bool is_between_frames_ = false;
  bool has_more_ = false;  // output, perhaps
};

// The bytes that a gzip or zstd file holds, all of its members one after the other; any other source as it is. Memory:
// what the format's window needs, with zstd at most 128 MiB.
// @param begin the first 4 bytes  @param path in errors: where it is damaged or cut
std::unique_ptr<ByteSource> uncompressed(std::string_view begin, std::unique_ptr<ByteSource> source, const Path& path) {
  if (begin.starts_with("\x1f\x8b"sv))
    return std::make_unique<GzipSource>(std::move(source), path);
  if (begin.starts_with("\x28\xb5\x2f\xfd"sv))
    return std::make_unique<ZstdSource>(std::move(source), path);
  return source;
}

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
      throw Error(ExitCode::data, {.what = "a text became shorter after a part of it was packed"});
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
