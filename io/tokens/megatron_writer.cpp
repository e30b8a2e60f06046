// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/megatron_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace espalier {
namespace {

constexpr std::size_t list_piece = 8192;  // entries
constexpr std::size_t token_buffer_bytes = std::size_t{1} << 20;
// A .bin has no mark: MegatronWriter looks for that of its .idx.
constexpr OutputMark megatron_tokens_mark{.kind = "the tokens of a Megatron data set", .begin = ""};

void require_new(const Path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) &&
      (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) > 0))
    throw Error(ExitCode::write, {.what = "the output exists already",
                                  .where = path.string(),
                                  .got = "a file or directory of this name",
                                  .wanted = "a new name",
                                  .todo = "choose another --output, or move the existing file away"});
}

const MegatronPair& checked(const MegatronPair& pair) {
  require_new_megatron(pair);
  const Path left = partial_file_path(followed(pair.tokens));
  if (!is_own_output(partial_file_path(followed(pair.index)), megatron_index_mark))
    require_new(left);  // else a killed writer has left both
  return pair;
}

// Values that are written to a file in pieces.
template <class T>
class ListWriter {
 public:
  explicit ListWriter(PartialFile& file) : file_(file) {}
  void push(T value) {
    piece_.push_back(value);
    if (piece_.size() == list_piece)
      flush();
  }
  void flush() {
    file_.write(piece_.data(), piece_.size() * sizeof(T));
    piece_.clear();
  }

 private:
  PartialFile& file_;
  std::vector<T> piece_;
};

}  // namespace

MegatronPair megatron_output(Path prefix) {
  if (prefix.extension() == megatron_tokens_extension || prefix.extension() == megatron_index_extension)
    prefix.replace_extension();
  MegatronPair pair{prefix, prefix};
  pair.tokens += megatron_tokens_extension;
  pair.index += megatron_index_extension;
  return pair;
}

void require_new_megatron(const MegatronPair& pair) {
  require_new(pair.tokens);
  require_new(pair.index);
}

MegatronWriter::MegatronWriter(const MegatronPair& pair, Index bytes_per_token, Index longest_sequence)
    : pair_(checked(pair)),
      bytes_per_token_(bytes_per_token),
      longest_sequence_(longest_sequence),
      index_(pair.index, megatron_index_mark),
      tokens_(pair.tokens, megatron_tokens_mark) {
  ESPALIER_ASSERT(bytes_per_token == 2 || bytes_per_token == 4,
                  fmt::format("tokens of {} bytes are not written", bytes_per_token));
  const std::string blank = header();  // the content comes last
  index_.write(blank.data(), blank.size());
}

std::string MegatronWriter::header() const {
  std::string header(megatron_index_mark.begin);
  const auto add = [&](std::uint64_t value) { header.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  add(1);
  header += static_cast<char>(bytes_per_token_ == 2 ? 8 : 4);
  add(static_cast<std::uint64_t>(num_sequences_));
  add(static_cast<std::uint64_t>(num_documents() + 1));
  return header;
}

void MegatronWriter::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    const auto word = static_cast<std::uint32_t>(token);
    ESPALIER_ASSERT(token >= 0 && (bytes_per_token_ == 4 || word <= 65535),
                    fmt::format("id {} does not fit in {} bytes", token, bytes_per_token_));
    if (in_sequence_ == longest_sequence_) {
      end_sequence();
      continued_.push_back(num_sequences_);
    }
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&word);
    token_buffer_.insert(token_buffer_.end(), bytes, bytes + bytes_per_token_);
    ++in_sequence_;
    ++num_tokens_;
    if (token_buffer_.size() >= token_buffer_bytes) {
      tokens_.write(token_buffer_.data(), token_buffer_.size());
      token_buffer_.clear();
    }
  }
}

void MegatronWriter::end_sequence() {
  lengths_.push_back(static_cast<std::int32_t>(in_sequence_));
  in_sequence_ = 0;
  ++num_sequences_;
  if (lengths_.size() < list_piece)
    return;
  index_.write(lengths_.data(), lengths_.size() * sizeof(lengths_[0]));
  lengths_.clear();
}

void MegatronWriter::end_document() { end_sequence(); }

void MegatronWriter::finish() {
  ESPALIER_ASSERT(in_sequence_ == 0, "the last document has not been ended");
  tokens_.write(token_buffer_.data(), token_buffer_.size());
  index_.write(lengths_.data(), lengths_.size() * sizeof(lengths_[0]));
  const InputFile written(partial_file_path(index_.path()), ExitCode::write);
  Index token = 0;
  ListWriter<std::int64_t> list(index_);
  written.read_pieces(megatron_header_bytes, written.size(), list_piece * sizeof(std::int32_t),
                      [&](std::string_view piece) {
                        for (std::size_t at = 0; at < piece.size(); at += sizeof(std::int32_t)) {
                          std::int32_t length = 0;
                          std::memcpy(&length, piece.data() + at, sizeof(length));
                          list.push(token * bytes_per_token_);
                          token += length;
                        }
                      });
  auto next_continued = continued_.begin();
  for (Index sequence = 0; sequence < num_sequences_; ++sequence) {
    if (next_continued != continued_.end() && *next_continued == sequence)
      ++next_continued;
    else
      list.push(sequence);
  }
  list.push(num_sequences_);
  list.flush();
  const std::string content = header();
  index_.write_at(0, content.data(), content.size());
  // An .idx alone is refused when it is read; a .bin alone would pass for nanoGPT's.
  index_.finish();
  try {
    tokens_.finish();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(index_.path(), ignored);
    throw;
  }
}

}  // namespace espalier
