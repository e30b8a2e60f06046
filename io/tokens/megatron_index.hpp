// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"
#include "io/own_output.hpp"

namespace espalier {

/// How the .idx of a Megatron data set begins.
inline constexpr OutputMark megatron_index_mark{.kind = "the index of a Megatron data set",
                                                .begin = std::string_view("MMIDIDX\0\0", 9)};

inline constexpr const char* megatron_tokens_extension = ".bin";
inline constexpr const char* megatron_index_extension = ".idx";

inline constexpr std::size_t megatron_header_bytes = 34;

/// The files of a Megatron data set; `index` is empty where a path leads to none.
struct MegatronPair {
  Path tokens;  ///< PREFIX.bin
  Path index;   ///< PREFIX.idx
};

/// The pair that PREFIX, PREFIX.bin or PREFIX.idx names. A .bin with an .idx beside it is one, a PREFIX only where no
/// file has that very name.
MegatronPair find_megatron_pair(const Path& path);

/// The .idx of a Megatron data set, version 1. The .bin holds the tokens of all sequences one after the other; a
/// document is a row of sequences. All is little endian:
///
///   offset  bytes  content
///        0      9  "MMIDIDX", two zeros
///        9      8  version, 1
///       17      1  type of the tokens: 1 uint8, 4 int32, 5 int64, 8 uint16; 2, 3, 6 and 7 are refused
///       18      8  S, number of sequences
///       26      8  D, number of documents + 1
///       34    4 S  tokens of each sequence, int32
///             8 S  its first byte in the .bin, int64
///             8 D  first sequence of each document, int64, then S
///          0 or S  a mode each, which is not read
///
/// The lists are read where they are asked for and kept nowhere. Every error is Error(data).
class MegatronIndex {
 public:
  /// Reads the header and the ends of the lists. @param token_bytes size of the .bin
  MegatronIndex(const MegatronPair& pair, std::size_t token_bytes);

  Index bytes_per_token() const { return bytes_per_token_; }
  bool has_sign() const { return has_sign_; }  ///< int32 and int64
  Index num_tokens() const { return static_cast<Index>(token_bytes_) / bytes_per_token_; }
  Index num_documents() const { return num_boundaries_ - 1; }

  /// Calls `visit` with the number of tokens of each document in order. Reads all lists; every entry is checked.
  void for_each_document(const std::function<void(Index num_tokens)>& visit) const;

  /// XXH3-64 of the file.
  std::string checksum() const;

  /// The first token of a document; num_tokens() for num_documents().
  Index document_begin(Index document) const;

  /// TokenFile::document_starts().
  std::vector<Index> document_starts(Index first, Index count) const;

 private:
  [[noreturn]] void refuse(std::string got, std::string wanted) const;
  std::size_t pointers_at() const;   // bytes before the list
  std::size_t documents_at() const;  // likewise

  InputFile file_;
  Path tokens_;
  std::size_t token_bytes_;
  Index bytes_per_token_ = 0;
  bool has_sign_ = false;
  Index num_sequences_ = 0;
  Index num_boundaries_ = 0;  // of documents: D
};

}  // namespace espalier
