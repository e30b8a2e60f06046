// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/megatron_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/hash.hpp"

namespace espalier {
namespace {

struct MegatronType {
  const char* name;
  Index bytes;  // 0: not read
  bool has_sign = false;
};
constexpr std::array<MegatronType, 9> megatron_types = {{{"no type", 0},
                                                         {"uint8", 1},
                                                         {"int8", 0},
                                                         {"int16", 0},
                                                         {"int32", 4, true},
                                                         {"int64", 8, true},
                                                         {"floating-point numbers", 0},
                                                         {"floating-point numbers", 0},
                                                         {"uint16", 2}}};

template <class T>
T value_at(const InputFile& file, std::size_t offset) {
  T value;
  file.read_at(offset, &value, sizeof(value));
  return value;
}

// A list in a file that is read from its beginning to its end, a piece at a time.
template <class T>
class ListReader {
 public:
  ListReader(const InputFile& file, std::size_t offset, Index size)
      : file_(file), offset_(offset), left_(static_cast<std::size_t>(size)) {}
  T next() {
    if (at_ == piece_.size()) {
      piece_.resize(std::min<std::size_t>(left_, 8192));
      file_.read_at(offset_, piece_.data(), piece_.size() * sizeof(T));
      offset_ += piece_.size() * sizeof(T);
      left_ -= piece_.size();
      at_ = 0;
    }
    return piece_[at_++];
  }

 private:
  const InputFile& file_;
  std::size_t offset_;
  std::size_t left_;  // values behind the piece
  std::vector<T> piece_;
  std::size_t at_ = 0;
};

}  // namespace

MegatronPair find_megatron_pair(const Path& path) {
  std::error_code ignored;
  MegatronPair pair{path, path};
  if (path.extension() == megatron_index_extension) {
    pair.tokens.replace_extension(megatron_tokens_extension);
    return pair;
  }
  if (path.extension() == megatron_tokens_extension) {
    pair.index.replace_extension(megatron_index_extension);
  } else if (!std::filesystem::is_regular_file(path, ignored)) {
    pair.index += megatron_index_extension;
    pair.tokens += megatron_tokens_extension;
  }
  if (pair.index == path || !std::filesystem::exists(std::filesystem::symlink_status(pair.index, ignored)))
    return {path, {}};
  return pair;
}

MegatronIndex::MegatronIndex(const MegatronPair& pair, std::size_t token_bytes)
    : file_(pair.index, ExitCode::data), tokens_(pair.tokens), token_bytes_(token_bytes) {
  const std::string_view mark = megatron_index_mark.begin;
  std::array<char, megatron_header_bytes> header = {};
  file_.read_at(0, header.data(), std::min(file_.size(), header.size()));
  if (!std::string_view(header.data(), header.size()).starts_with(mark))
    refuse("another beginning",
           fmt::format("\"MMIDIDX\" and two zeros, as {} has an .idx beside it", tokens_.string()));
  if (file_.size() < header.size())
    refuse(fmt::format("{} bytes", file_.size()), fmt::format("a header of {} bytes, then lists", header.size()));
  std::uint64_t version = 0;
  std::uint64_t num_sequences = 0;
  std::uint64_t num_boundaries = 0;
  std::memcpy(&version, header.data() + 9, sizeof(version));
  std::memcpy(&num_sequences, header.data() + 18, sizeof(num_sequences));
  std::memcpy(&num_boundaries, header.data() + 26, sizeof(num_boundaries));
  if (version != 1)
    refuse(fmt::format("version {}", version), "version 1");
  const auto code = static_cast<unsigned char>(header[17]);
  const MegatronType type = code < megatron_types.size() ? megatron_types[code] : megatron_types[0];
  if (type.bytes == 0)
    refuse(fmt::format("tokens of type {}: {}", code, type.name), "uint8 (1), int32 (4), int64 (5) or uint16 (8)");
  bytes_per_token_ = type.bytes;
  has_sign_ = type.has_sign;
  if (num_sequences > file_.size() || num_boundaries > file_.size() || num_boundaries == 0)
    refuse(fmt::format("{} sequences and {} boundaries of documents in {} bytes", num_sequences, num_boundaries,
                       file_.size()),
           "as many as the file has bytes for, and at least one boundary");
  num_sequences_ = static_cast<Index>(num_sequences);
  num_boundaries_ = static_cast<Index>(num_boundaries);
  const std::size_t wanted = documents_at() + 8 * num_boundaries;
  if (file_.size() != wanted && file_.size() != wanted + num_sequences)
    refuse(fmt::format("{} bytes", file_.size()),
           fmt::format("{} bytes: {} sequences and {} boundaries of documents", wanted, num_sequences, num_boundaries));
  const auto first = value_at<std::int64_t>(file_, documents_at());
  const auto last = value_at<std::int64_t>(file_, wanted - 8);
  if (first != 0 || last != num_sequences_)
    refuse(fmt::format("documents from sequence {} to {}", first, last), fmt::format("from 0 to {}", num_sequences_));
  const Index length = num_sequences == 0 ? 0 : value_at<std::int32_t>(file_, pointers_at() - 4);
  const Index begin = num_sequences == 0 ? 0 : value_at<std::int64_t>(file_, documents_at() - 8);
  const auto size = static_cast<Index>(token_bytes);
  if (length < 0 || begin < 0 || begin > size || size - begin != length * bytes_per_token_ ||
      size % bytes_per_token_ != 0)
    refuse(fmt::format("a last sequence of {} tokens of {} at byte {}", length, bytes_per_token_, begin),
           fmt::format("one that ends with {}, at byte {}", tokens_.string(), token_bytes));
}

void MegatronIndex::refuse(std::string got, std::string wanted) const {
  throw Error(ExitCode::data, {.what = "an .idx is damaged, does not fit its .bin, or is not Megatron's",
                               .where = file_.path().string(),
                               .got = std::move(got),
                               .wanted = std::move(wanted),
                               .todo = "copy both files again, or make them again with their program; "
                                       "move away an .idx that does not belong to the .bin"});
}

std::size_t MegatronIndex::pointers_at() const {
  return megatron_header_bytes + sizeof(std::int32_t) * static_cast<std::size_t>(num_sequences_);
}

std::size_t MegatronIndex::documents_at() const {
  return pointers_at() + sizeof(std::int64_t) * static_cast<std::size_t>(num_sequences_);
}

void MegatronIndex::for_each_document(const std::function<void(Index num_tokens)>& visit) const {
  ListReader<std::int32_t> lengths(file_, megatron_header_bytes, num_sequences_);
  ListReader<std::int64_t> pointers(file_, pointers_at(), num_sequences_);
  ListReader<std::int64_t> boundaries(file_, documents_at(), num_boundaries_);
  Index sequence = 0;
  Index token = 0;
  for (Index boundary = 0; boundary < num_boundaries_; ++boundary) {
    const Index end = boundaries.next();
    if (end < sequence || end > num_sequences_ || (boundary == 0 && end != 0))
      refuse(fmt::format("a document {} that begins with sequence {}", boundary, end),
             boundary == 0 ? "0" : fmt::format("{} to {}", sequence, num_sequences_));
    const Index first_token = token;
    for (; sequence < end; ++sequence) {
      const Index length = lengths.next();
      const Index pointer = pointers.next();
      if (length < 0 || pointer != token * bytes_per_token_ || length > num_tokens() - token)
        refuse(fmt::format("sequence {}: {} tokens at byte {}", sequence, length, pointer),
               fmt::format("at byte {}, where the one before it ends, and at most {} tokens", token * bytes_per_token_,
                           num_tokens() - token));
      token += length;
    }
    if (boundary > 0)
      visit(token - first_token);
  }
  if (sequence != num_sequences_ || token != num_tokens())
    refuse(fmt::format("documents that end with sequence {} and token {}", sequence, token),
           fmt::format("sequence {} and token {}", num_sequences_, num_tokens()));
}

std::string MegatronIndex::checksum() const {
  Hasher hasher;
  file_.read_pieces(0, file_.size(), std::size_t{1} << 20,
                    [&](std::string_view piece) { hasher.update(piece.data(), piece.size()); });
  return fmt::format("{:016x}", hasher.xxh3_64());
}

Index MegatronIndex::document_begin(Index document) const {
  ESPALIER_ASSERT(document >= 0 && document <= num_documents(),
                  fmt::format("there is no document {} of {}", document, num_documents()));
  const auto sequence = value_at<std::int64_t>(file_, documents_at() + 8 * static_cast<std::size_t>(document));
  if (sequence == num_sequences_)
    return num_tokens();
  if (sequence < 0 || sequence > num_sequences_)
    refuse(fmt::format("a document {} that begins with sequence {}", document, sequence),
           fmt::format("0 to {}", num_sequences_));
  const auto pointer = value_at<std::int64_t>(file_, pointers_at() + 8 * static_cast<std::size_t>(sequence));
  if (pointer < 0 || pointer > static_cast<Index>(token_bytes_) || pointer % bytes_per_token_ != 0)
    refuse(fmt::format("sequence {} at byte {}", sequence, pointer), fmt::format("0 to {}", token_bytes_));
  return pointer / bytes_per_token_;
}

std::vector<Index> MegatronIndex::document_starts(Index first, Index count) const {
  Index document = 0;  // the first that begins behind `first`
  for (Index end = num_documents(); document < end;) {
    const Index middle = document + (end - document) / 2;
    if (document_begin(middle) <= first)
      document = middle + 1;
    else
      end = middle;
  }
  std::vector<Index> starts;
  for (; document < num_documents(); ++document) {
    const Index begin = document_begin(document);
    if (begin >= std::min(first + count, num_tokens()))
      break;
    if (begin > (starts.empty() ? first : starts.back()))
      starts.push_back(begin);
  }
  return starts;
}

}  // namespace espalier
