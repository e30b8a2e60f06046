// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "io/token_file.hpp"

namespace espalier {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

}  // namespace

TokenFileWriter::TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size,
                                 Index bytes_per_token)
    : file_(path, token_file_mark) {
  ESPALIER_ASSERT(vocab_size > 0 && tokenizer.size() < sizeof(header_.tokenizer),
                  fmt::format("no tokenizer is named {} and has {} tokens", tokenizer, vocab_size));
  ESPALIER_ASSERT(bytes_per_token == 0 || bytes_per_token == 2 || bytes_per_token == 4,
                  fmt::format("tokens of {} bytes are not written", bytes_per_token));
  header_.bytes_per_token = static_cast<std::uint32_t>(bytes_per_token > 0   ? bytes_per_token
                                                       : vocab_size <= 65536 ? 2
                                                                             : 4);
  header_.vocab_size = static_cast<std::uint64_t>(vocab_size);
  std::memcpy(header_.tokenizer, tokenizer.data(), tokenizer.size());
  buffer_.reserve(buffer_bytes + sizeof(std::uint32_t));
}

void TokenFileWriter::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<std::uint64_t>(token) >= header_.vocab_size)
      throw Error(ExitCode::data,
                  {.what = "a token is beyond the tokenizer's vocabulary",
                   .where = fmt::format("{}: token {}", file_.path().string(), header_.num_tokens),
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
  file_.finish();
}

}  // namespace espalier
