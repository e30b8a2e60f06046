// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/own_output.hpp"
#include "io/token_file.hpp"

namespace espalier {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

[[noreturn]] void refuse_second_writer(const Path& path) {
  throw Error(ExitCode::write, {.what = "another process writes this token file now",
                                .where = path.string(),
                                .got = token_file_temporary(path).string() + ", which it holds",
                                .wanted = "one writer at a time",
                                .todo = "wait for it, or name another output"});
}

// Takes the lock that a writer holds on what it writes; a file system that has no locks gives it at once. False while
// another has it.
bool takes_lock(const FileDescriptor& file) {
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool is_at(const FileDescriptor& file, const Path& path) {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(file.get(), &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

// What an earlier, killed writer left under the temporary name is ours to remove; nothing else is.
Path fresh_temporary(const Path& path) {
  Path temporary = token_file_temporary(path);
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(temporary, missing)))
    return temporary;
  const FileDescriptor left(::open(temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (left.is_open() && !takes_lock(left))
    refuse_second_writer(path);
  const bool is_file = std::filesystem::is_regular_file(std::filesystem::symlink_status(temporary));
  if (!is_file || (std::filesystem::file_size(temporary, missing) > 0 && !is_own_output(temporary, token_file_mark)))
    throw Error(ExitCode::write, {.what = "a file stands where a token file is written before it is complete",
                                  .where = temporary.string(),
                                  .got = "a file without the mark of `espalier data pack`",
                                  .wanted = "no file of this name",
                                  .todo = "move it away, or name another output"});
  std::filesystem::remove(temporary, missing);
  return temporary;
}

OutputFile new_file(const Path& temporary, const Path& path) {
  try {
    return OutputFile(temporary, path);
  } catch (const Error&) {
    std::error_code missing;
    if (std::filesystem::exists(temporary, missing))  // somebody was faster
      refuse_second_writer(path);
    throw;
  }
}

// The lock, which outlives the file's closing. Until it is taken another writer may take the new file for a leftover.
FileDescriptor locked(const OutputFile& file, const Path& temporary, const Path& path) {
  FileDescriptor lock(::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!takes_lock(lock) || !is_at(lock, temporary))
    refuse_second_writer(path);
  return lock;
}

}  // namespace

Path token_file_temporary(Path path) { return path += ".partial"; }

TokenFileWriter::TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size)
    : path_(followed(path)),
      temporary_(fresh_temporary(path_)),
      file_(new_file(temporary_, path)),
      lock_(locked(file_, temporary_, path)) {
  ESPALIER_ASSERT(vocab_size > 0 && tokenizer.size() < sizeof(header_.tokenizer),
                  fmt::format("no tokenizer is named {} and has {} tokens", tokenizer, vocab_size));
  header_.bytes_per_token = vocab_size <= 65536 ? 2 : 4;
  header_.vocab_size = static_cast<std::uint64_t>(vocab_size);
  std::memcpy(header_.tokenizer, tokenizer.data(), tokenizer.size());
  buffer_.reserve(buffer_bytes + sizeof(std::uint32_t));
}

TokenFileWriter::~TokenFileWriter() {
  if (finished_ || !is_at(lock_, temporary_))
    return;
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void TokenFileWriter::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<std::uint64_t>(token) >= header_.vocab_size)
      throw Error(ExitCode::data,
                  {.what = "a token is beyond the tokenizer's vocabulary",
                   .where = fmt::format("{}: token {}", path_.string(), header_.num_tokens),
                   .got = fmt::format("id {}", token),
                   .wanted = fmt::format("0 to {}", header_.vocab_size - 1),
                   .todo = "make the writer with the vocabulary of the tokenizer that made the tokens"});
    const auto word = static_cast<std::uint32_t>(token);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&word);
    buffer_.insert(buffer_.end(), bytes, bytes + header_.bytes_per_token);
    ++header_.num_tokens;
    if (buffer_.size() >= buffer_bytes)
      flush();
  }
}

void TokenFileWriter::flush() {
  if (!std::exchange(has_header_, true))
    file_.write(&header_, sizeof(header_));  // its place; the content comes last
  hasher_.update(buffer_.data(), buffer_.size());
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void TokenFileWriter::finish() {
  flush();
  header_.payload_hash = hasher_.xxh3_64();
  header_.header_hash = xxh3_64(&header_, offsetof(TokenFileHeader, header_hash));
  file_.write_at(0, &header_, sizeof(header_));
  file_.sync_and_close();
  if (!is_at(lock_, temporary_))
    refuse_second_writer(path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw_write_error("cannot replace a file", path_, errno);
  finished_ = true;
  sync_directory(path_.parent_path());
}

}  // namespace espalier
