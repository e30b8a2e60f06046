// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "io/tokens/token_file.hpp"

namespace espalier {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;
constexpr OutputMark ends_mark{.kind = "the documents of an unfinished token file", .begin = "ESPENDS\n"};

TokenFileHeader header_of(const std::string& tokenizer, Index vocab_size, Index bytes_per_token) {
  TokenFileHeader header;
  ESPALIER_ASSERT(vocab_size > 0 && tokenizer.size() < sizeof(header.tokenizer),
                  fmt::format("no tokenizer is named {} and has {} tokens", tokenizer, vocab_size));
  ESPALIER_ASSERT(bytes_per_token == 0 || bytes_per_token == 2 || bytes_per_token == 4,
                  fmt::format("tokens of {} bytes are not written", bytes_per_token));
  header.bytes_per_token = static_cast<std::uint32_t>(bytes_per_token > 0   ? bytes_per_token
                                                      : vocab_size <= 65536 ? 2
                                                                            : 4);
  header.vocab_size = static_cast<std::uint64_t>(vocab_size);
  std::memcpy(header.tokenizer, tokenizer.data(), tokenizer.size());
  return header;
}

Path ends_path(const Path& path) { return Path(path) += ".documents"; }

}  // namespace

TokenFileWriter::TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size,
                                 Index bytes_per_token)
    : file_(path, token_file_mark), header_(header_of(tokenizer, vocab_size, bytes_per_token)) {
  buffer_.reserve(buffer_bytes + sizeof(std::uint32_t));
}

TokenFileWriter::TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size,
                                 const Progress& progress)
    : file_(path, token_file_mark,
            sizeof(TokenFileHeader) + progress.num_tokens * header_of(tokenizer, vocab_size, 0).bytes_per_token),
      header_(header_of(tokenizer, vocab_size, 0)),
      has_header_(true) {
  buffer_.reserve(buffer_bytes + sizeof(std::uint32_t));
  header_.num_tokens = progress.num_tokens;
  const InputFile left(partial_file_path(file_.path()), ExitCode::write);
  left.read_pieces(sizeof(TokenFileHeader), left.size(), buffer_bytes,
                   [&](std::string_view piece) { hasher_.update(piece.data(), piece.size()); });
  if (hasher_.xxh3_64() != progress.payload_hash)
    throw Error(ExitCode::write, {.what = "an unfinished token file is damaged",
                                  .where = left.path().string(),
                                  .got = fmt::format("XXH3-64 {:016x}", hasher_.xxh3_64()),
                                  .wanted = fmt::format("{:016x}", progress.payload_hash),
                                  .todo = "run the command again; it starts from the beginning"});
  if (progress.num_documents == 0)
    return;
  const std::size_t bytes = ends_mark.begin.size() + progress.num_documents * sizeof(std::uint64_t);
  ends_.emplace(ends_path(file_.path()), ends_mark, bytes);
  header_.num_documents = progress.num_documents;
  InputFile(partial_file_path(ends_->path()), ExitCode::write)
      .read_at(bytes - sizeof(last_end_), &last_end_, sizeof(last_end_));
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
  if (!loss_mask_.empty())
    loss_mask_.resize(header_.num_tokens, true);
}

void TokenFileWriter::append(std::span<const TokenId> tokens, std::span<const std::uint8_t> loss_mask) {
  ESPALIER_ASSERT(tokens.size() == loss_mask.size(),
                  fmt::format("{} tokens have a loss mask of {}", tokens.size(), loss_mask.size()));
  loss_mask_.resize(header_.num_tokens, true);
  for (const std::uint8_t is_target : loss_mask)
    loss_mask_.push_back(is_target != 0);
  append(tokens);
}

void TokenFileWriter::flush() {
  if (!std::exchange(has_header_, true))
    file_.write(&header_, sizeof(header_));  // its place; the content comes last
  hasher_.update(buffer_.data(), buffer_.size());
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void TokenFileWriter::end_document() {
  if (!ends_) {
    ends_.emplace(ends_path(file_.path()), ends_mark);
    ends_->write(ends_mark.begin.data(), ends_mark.begin.size());
  }
  last_end_ = header_.num_tokens;
  ends_buffer_.push_back(last_end_);
  ++header_.num_documents;
  if (ends_buffer_.size() * sizeof(last_end_) >= buffer_bytes)
    flush_ends();
}

void TokenFileWriter::flush_ends() {
  if (ends_)
    ends_->write(ends_buffer_.data(), ends_buffer_.size() * sizeof(last_end_));
  ends_buffer_.clear();
}

TokenFileWriter::Progress TokenFileWriter::progress() {
  ESPALIER_ASSERT(loss_mask_.empty(), "a loss mask is not on disk before the end");
  flush();
  flush_ends();
  return {header_.num_tokens, header_.num_documents, hasher_.xxh3_64()};
}

TokenFileWriter::Progress TokenFileWriter::sync() {
  const Progress progress = this->progress();
  file_.sync();
  if (ends_)
    ends_->sync();
  return progress;
}

void TokenFileWriter::keep() {
  file_.keep();
  if (ends_)
    ends_->keep();
}

void TokenFileWriter::write_sections() {
  header_.version = 2;
  if (ends_) {
    ESPALIER_ASSERT(!has_open_document(), "the last document has not been ended");
    flush_ends();
    const InputFile written(partial_file_path(ends_->path()), ExitCode::write);
    Hasher hasher;
    written.read_pieces(ends_mark.begin.size(), written.size(), buffer_bytes, [&](std::string_view piece) {
      hasher.update(piece.data(), piece.size());
      file_.write(piece.data(), piece.size());
    });
    header_.documents_hash = hasher.xxh3_64();
  }
  if (loss_mask_.empty())
    return;
  std::vector<unsigned char> mask((loss_mask_.size() + 7) / 8);
  for (std::size_t i = 0; i < loss_mask_.size(); ++i)
    mask[i / 8] = static_cast<unsigned char>(mask[i / 8] | (loss_mask_[i] ? 1 << (i % 8) : 0));
  header_.has_loss_mask = 1;
  header_.loss_mask_hash = xxh3_64(mask.data(), mask.size());
  file_.write(mask.data(), mask.size());
}

void TokenFileWriter::complete() {
  if (std::exchange(is_complete_, true))
    return;
  flush();
  header_.payload_hash = hasher_.xxh3_64();
  if (ends_ || !loss_mask_.empty())
    write_sections();
  header_.header_hash = xxh3_64(&header_, offsetof(TokenFileHeader, header_hash));
  file_.write_at(0, &header_, sizeof(header_));
  file_.sync();
}

void TokenFileWriter::finish() {
  complete();
  file_.finish();
}

}  // namespace espalier
